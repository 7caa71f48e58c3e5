package auditlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/mod/sumdb/note"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/trust/audit"
)

// lineReader reads the lines of a log or of the checkpoints, one at a time.
type lineReader struct{ br *bufio.Reader }

var errTooLong = errors.New("a line is too long")

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{br: bufio.NewReaderSize(r, 4*audit.MaxLine)}
}

// next returns a line without its newline, valid until the next call; io.EOF at
// the end, errUnfinished when the last line has no newline.
func (r *lineReader) next() ([]byte, error) {
	text, err := r.br.ReadSlice('\n')
	switch {
	case err == io.EOF && len(text) > 0:
		return nil, errUnfinished
	case errors.Is(err, bufio.ErrBufferFull) || err == nil && len(text) > audit.MaxLine:
		return nil, errTooLong
	case err != nil:
		return nil, err
	}
	return text[:len(text)-1], nil
}

// checkpointReader reads checkpoints one after the other.
type checkpointReader struct {
	r    *lineReader
	v    note.Verifier
	text []byte
}

// errUnfinished means that a file ends in the middle of a line or checkpoint.
var errUnfinished = errors.New("it is unfinished")

// next returns the next checkpoint, io.EOF after the last, errUnfinished when
// the file ends within a checkpoint, and another error when it cannot be trusted.
func (r *checkpointReader) next() (audit.Mark, error) {
	r.text = r.text[:0]
	for i := range audit.CheckpointLines {
		l, err := r.r.next()
		switch {
		case err == io.EOF && i > 0:
			return audit.Mark{}, errUnfinished
		case err != nil:
			return audit.Mark{}, err
		}
		r.text = append(append(r.text, l...), '\n')
		if len(r.text) > audit.MaxCheckpoint {
			return audit.Mark{}, errTooLong
		}
	}
	return audit.ParseCheckpoint(r.text, r.v)
}

func openSegment(dir string, n int) (*os.File, error) {
	return os.OpenFile(audit.SegmentPath(dir, n), os.O_RDONLY|durable.NoFollow, 0)
}

// wasPruned reports whether err means that a segment is missing because it was
// pruned after the segments were listed.
func wasPruned(dir string, number int, err error) bool {
	if !missing(err) {
		return false
	}
	b, err := audit.ReadBeginning(dir, nil)
	return err == nil && number <= b.Segment
}

// lastLines returns up to n complete lines from the end of the first size bytes
// of r, last line first, without their newlines, and the offset behind the last
// newline. A line longer than audit.MaxLine ends the search with audit.ErrDamaged.
func lastLines(r io.ReaderAt, size int64, n int) (lines [][]byte, end int64, err error) {
	if end, err = audit.LastNewline(r, size); err != nil {
		return nil, 0, err
	}
	var held []byte // bytes [at, stop) of the file; they may begin in the middle of a line
	for at, stop := end, end; len(lines) < n && stop > 0; {
		cut := -1
		if len(held) > 0 {
			cut = bytes.LastIndexByte(held[:len(held)-1], '\n')
		}
		switch {
		case cut >= 0 || at == 0 && len(held) > 0:
			lines = append(lines, bytes.Clone(held[cut+1:len(held)-1]))
			held = held[:cut+1]
			stop = at + int64(len(held))
		case len(held) > audit.MaxLine:
			return nil, 0, fmt.Errorf("%w: a line is longer than %d bytes", audit.ErrDamaged, audit.MaxLine)
		default:
			more := make([]byte, min(at, audit.MaxLine), min(at, audit.MaxLine)+int64(len(held)))
			at -= int64(len(more))
			if err := audit.ReadAt(r, more, at); err != nil {
				return nil, 0, err
			}
			held = append(more, held...)
		}
	}
	return lines, end, nil
}

// missing reports whether err means that a file does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
