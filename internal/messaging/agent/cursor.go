package agent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// A cursor is a receipt that its holder cannot read, alter or hand on: the
// peer id, its epoch, the two positions and the thread that they are about,
// under a MAC that also covers the session it was given to. So a cursor of another peer, of another epoch or of
// another session is one that was never made.
const (
	cursorVersion = 1
	idLength      = 26                 // of a ULID
	cursorBody    = 1 + idLength + 3*8 // and the id of a thread, or none
	cursorMAC     = 16
)

var cursorEncoding = base64.RawURLEncoding.Strict()

// cursor seals a receipt for a session.
func (s *Server) cursor(r mail.Receipt, session string) string {
	b := make([]byte, 1, cursorBody+idLength+cursorMAC)
	b[0] = cursorVersion
	var id [idLength]byte
	copy(id[:], r.PeerID)
	b = append(b, id[:]...)
	for _, n := range []int64{r.Epoch, r.Seq, r.Notice} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = append(b, r.Thread...)
	return cursorEncoding.EncodeToString(append(b, s.cursorMAC(b, session)...))
}

func (s *Server) cursorMAC(body []byte, session string) []byte {
	h := hmac.New(sha256.New, s.o.CursorKey)
	h.Write(body)
	h.Write([]byte(session))
	return h.Sum(nil)[:cursorMAC]
}

// receipt opens a cursor; nil for none. Whether it is of the caller's peer in
// its present epoch the book decides, in its transaction.
func (s *Server) receipt(text, session string) (*mail.Receipt, error) {
	if text == "" {
		return nil, nil
	}
	b, err := cursorEncoding.DecodeString(text)
	body := len(b) - cursorMAC
	if err != nil || body != cursorBody && body != cursorBody+idLength || b[0] != cursorVersion ||
		!hmac.Equal(b[body:], s.cursorMAC(b[:body], session)) {
		return nil, refuse(mail.CursorInvalid)
	}
	number := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[1+idLength+8*i:])) }
	return &mail.Receipt{PeerID: string(b[1 : 1+idLength]), Epoch: number(0), Seq: number(1), Notice: number(2),
		Thread: string(b[cursorBody:body])}, nil
}
