package agent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// A cursor is a receipt that its holder cannot read, alter or pass on: the peer id, its
// epoch, the two positions and the thread that they are about, under a MAC that also
// covers the session it was given to. A cursor of another peer, epoch or session is
// therefore invalid.
const (
	cursorVersion = 2
	idLength      = 26 // of a ULID
	cursorMAC     = 16
)

var cursorEncoding = base64.RawURLEncoding.Strict()

// cursor seals a receipt for a session.
func (s *cursors) cursor(r mail.Receipt, session string) string {
	b := make([]byte, 1, 2*idLength+3*binary.MaxVarintLen64+cursorMAC)
	b[0] = cursorVersion
	var id [idLength]byte
	copy(id[:], r.PeerID)
	b = append(b, id[:]...)
	for _, n := range []int64{r.Epoch, r.Seq, r.Notice} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = append(b, r.Thread...)
	return cursorEncoding.EncodeToString(append(b, s.cursorMAC(b, session)...))
}

func (s *cursors) cursorMAC(body []byte, session string) []byte {
	h := hmac.New(sha256.New, s.o.CursorKey)
	h.Write(body)
	h.Write([]byte(session))
	return h.Sum(nil)[:cursorMAC]
}

// receipt opens a cursor; nil for an empty text. The book checks, in its transaction,
// that the receipt is of the caller's peer in its present epoch.
func (s *cursors) receipt(text, session string) (*mail.Receipt, error) {
	if text == "" {
		return nil, nil
	}
	b, err := cursorEncoding.DecodeString(text)
	body := len(b) - cursorMAC
	if err != nil || body < 1+idLength || b[0] != cursorVersion || !hmac.Equal(b[body:], s.cursorMAC(b[:body], session)) {
		return nil, refuse(mail.CursorInvalid)
	}
	r, rest := mail.Receipt{PeerID: string(b[1 : 1+idLength])}, b[1+idLength:body]
	for _, to := range []*int64{&r.Epoch, &r.Seq, &r.Notice} {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			return nil, refuse(mail.CursorInvalid)
		}
		*to, rest = int64(n), rest[size:]
	}
	r.Thread = string(rest)
	return &r, nil
}
