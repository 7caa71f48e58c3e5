package audit

// Checkpoints. Invariant: a checkpoint is signed only about records that are on
// the disk, and a checkpoint is read only in the one spelling that can be signed.

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/doorward/doorward/internal/base/durable"
)

// Origin is the name of the key and the first line of every checkpoint.
const Origin = "doorward/audit"

// Key signs checkpoints and beginnings. Signer and Verifier are one key pair named Origin.
// Printing either does not reveal the private key.
type Key struct {
	Signer   note.Signer
	Verifier note.Verifier
}

// CheckpointsName is the file of the checkpoints in the directory of the log.
const CheckpointsName = "checkpoints"

// CheckpointLines is the number of lines of one checkpoint: origin, count, hash,
// time, an empty line, the signature, an empty line.
const CheckpointLines = 7

// MaxCheckpoint is an upper bound of the bytes of a checkpoint.
const MaxCheckpoint = 1024

// BadCheckpoint is an error of a checkpoint, or a beginning, that cannot be trusted.
type BadCheckpoint string

func (b BadCheckpoint) Error() string { return string(b) }

const (
	errCheckpointForm = BadCheckpoint("it does not have the form of a checkpoint")
	errSignature      = BadCheckpoint("its signature is not valid")
)

// Mark is the content of a checkpoint without its signature: the log had Seq
// records, the last of them with that hash. A mark that is kept outside the log shows
// that the log was removed or replaced by an older copy.
type Mark struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"` // lower-case hex
	Time string `json:"time"` // of the checkpoint, RFC 3339
}

// text returns the text that sign signs: of a beginning, or of a checkpoint if Segment is 0.
func (b Beginning) text() (string, error) {
	origin, end := Origin, ""
	if b.Segment > 0 {
		origin, end = beginOrigin, fmt.Sprintf("segment %d\n", b.Segment)
	}
	raw, err := hex.DecodeString(b.Hash)
	return fmt.Sprintf("%s\n%d\n%s\ntime %s\n%s", origin, b.Seq, base64.StdEncoding.EncodeToString(raw), b.Time, end), err
}

// sign returns the signed note of a beginning, or of a checkpoint if Segment is 0. Their
// first lines differ, so that neither is accepted as the other.
func (b Beginning) sign(k *Key) (signed []byte, err error) {
	text, err := b.text()
	if err == nil {
		signed, err = note.Sign(&note.Note{Text: text}, k.Signer)
	}
	if err != nil {
		return nil, fmt.Errorf("signing a checkpoint: %w", err)
	}
	return signed, nil
}

// parseNote parses a note that sign made. It accepts only the spelling that text writes, so
// that a note has one form. A nil verifier leaves the signature unchecked.
func parseNote(signed []byte, v note.Verifier) (b Beginning, err error) {
	text, signature, _ := strings.Cut(string(signed), "\n\n")
	lines := strings.Split(text, "\n") // origin, count, hash, time and perhaps segment
	if len(lines) < 4 {
		return b, errCheckpointForm
	}
	b.Seq, _ = strconv.ParseUint(lines[1], 10, 64)
	raw, _ := base64.StdEncoding.DecodeString(lines[2])
	b.Hash, b.Time = hex.EncodeToString(raw), strings.TrimPrefix(lines[3], "time ")
	if len(lines) > 4 {
		b.Segment, _ = strconv.Atoi(strings.TrimPrefix(lines[4], "segment "))
	}
	if again, _ := b.text(); again != text+"\n" || len(b.Hash) != hexLen || !isTime([]byte(b.Time)) {
		return Beginning{}, errCheckpointForm
	}
	return b, checkSignature(signed, signature, v)
}

// checkSignature accepts exactly one signature, in the strict base64 spelling.
// note.Open alone would accept several spellings of the same bytes.
func checkSignature(signed []byte, signature string, v note.Verifier) error {
	line, whole := strings.CutSuffix(signature, "\n")
	encoded := line[strings.LastIndexByte(line, ' ')+1:]
	if _, err := base64.StdEncoding.Strict().DecodeString(encoded); err != nil || !whole || strings.Contains(line, "\n") {
		return errCheckpointForm
	}
	if v == nil {
		return nil
	}
	if _, err := note.Open(signed, note.VerifierList(v)); err != nil {
		return errSignature
	}
	return nil
}

// ParseCheckpoint parses one checkpoint of CheckpointLines lines. A nil verifier
// leaves the signature unchecked; an error is a BadCheckpoint.
func ParseCheckpoint(text []byte, v note.Verifier) (Mark, error) {
	signed, ok := bytes.CutSuffix(text, []byte("\n")) // the empty line behind the note
	b, err := parseNote(signed, v)
	if err == nil && (!ok || b.Segment != 0) {
		err = errCheckpointForm
	}
	return b.Mark, err
}

// Checkpointed returns the newest checkpoint of the log, also after Close; false:
// there is none.
func (l *Log) Checkpointed() (Mark, bool) {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.checkpoints.last, l.checkpoints.any
}

// checkpointFile is the writer's view of the file of checkpoints: size is the length up
// to which it holds whole checkpoints, last is the newest of them, any reports whether
// there is one.
type checkpointFile struct {
	path string
	size int64
	last Mark
	any  bool
}

// openCheckpoints finds the newest checkpoint of dir and cuts off an unfinished one
// behind it; cut is the number of bytes that were cut off.
func openCheckpoints(dir string, v note.Verifier) (c checkpointFile, cut int64, err error) {
	c.path = filepath.Join(dir, CheckpointsName)
	f, err := os.OpenFile(c.path, os.O_RDWR|durable.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return c, 0, nil
	}
	if err != nil {
		return c, 0, fmt.Errorf("opening the checkpoints: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return c, 0, fmt.Errorf("opening the checkpoints: %w", err)
	}
	tail := make([]byte, min(fi.Size(), 2*MaxCheckpoint))
	if err := ReadAt(f, tail, fi.Size()-int64(len(tail))); err != nil {
		return c, 0, err
	}
	written, _, _ := bytes.Cut(tail, []byte{0}) // a power loss may leave zeros in the part that was not synced
	whole := lastCheckpoint(written)
	cut = int64(len(tail) - len(whole))
	c.size = fi.Size() - cut
	if len(whole) > 0 {
		start := bytes.LastIndex(whole, []byte("\n"+Origin+"\n")) + 1
		if c.last, err = ParseCheckpoint(whole[start:], v); err == nil && !endsOnce(whole[:start]) {
			err = errCheckpointForm
		}
		if err != nil {
			return c, 0, fmt.Errorf("%w: the last checkpoint cannot be trusted: %w", ErrDamaged, err)
		}
		c.any = true
	} else if cut == 2*MaxCheckpoint {
		return c, 0, fmt.Errorf("%w: the file of checkpoints does not end with a checkpoint", ErrDamaged)
	}
	if err := f.Truncate(c.size); err != nil {
		return c, 0, fmt.Errorf("cutting an unfinished checkpoint off: %w", err)
	}
	return c, cut, nil
}

// endsOnce reports whether b, which was read from before a checkpoint, ends with one empty
// line, as far as it shows.
func endsOnce(b []byte) bool {
	return len(b) < 2 || bytes.HasSuffix(b, []byte("\n\n")) && !bytes.HasSuffix(b, []byte("\n\n\n"))
}

// lastCheckpoint shortens b so that it ends with the last signature line and the empty
// line behind it; nil: there is none.
func lastCheckpoint(b []byte) []byte {
	for end := len(b); end > 0; {
		i := bytes.LastIndex(b[:end], []byte("\n\n"))
		if i < 0 {
			return nil
		}
		line := b[bytes.LastIndexByte(b[:i], '\n')+1 : i]
		if bytes.HasPrefix(line, []byte("— ")) {
			return b[:i+2]
		}
		end = i + 1
	}
	return nil
}

// add signs next and appends it durably. After an error, size still excludes the bytes
// of the failed attempt, and the next add cuts them off.
func (c *checkpointFile) add(next Mark, k *Key) error {
	b, err := Beginning{Mark: next}.sign(k)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|durable.NoFollow, 0o600)
	if err != nil {
		return fmt.Errorf("opening the checkpoints: %w", err)
	}
	defer f.Close()
	if err := cutBack(f, c.size); err != nil { // drops the bytes of an earlier failed attempt
		return fmt.Errorf("writing a checkpoint: %w", err)
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		return errors.Join(fmt.Errorf("writing a checkpoint: %w", err), cutBack(f, c.size))
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("bringing a checkpoint to the disk: %w", err)
	}
	if !c.any {
		if err := durable.SyncDir(filepath.Dir(c.path)); err != nil {
			return fmt.Errorf("bringing the checkpoints to the disk: %w", err)
		}
	}
	c.size += int64(len(b) + 1)
	c.last, c.any = next, true
	return nil
}

// Stamp returns t in the form of a record: RFC 3339 in UTC with six digits of a second.
func Stamp(t time.Time) string { return string(appendTime(nil, t)) }
