package audit

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
)

// TestANoteHasOneSpelling: a note with a valid signature is refused when its text is not
// what sign writes, and a checkpoint and a beginning are not accepted as each other.
func TestANoteHasOneSpelling(t *testing.T) {
	t.Parallel()
	key, err := freshKey()
	if err != nil {
		t.Fatal(err)
	}
	zeros := base64.StdEncoding.EncodeToString(make([]byte, 32))
	good := Origin + "\n7\n" + zeros + "\ntime " + timeShape + "\n"
	begin := strings.Replace(good, Origin, beginOrigin, 1) + "segment 3\n"
	for text, want := range map[string][2]bool{ // whether it is a checkpoint, and a beginning
		good: {true, false}, begin: {false, true},
		strings.Replace(good, "\n7", "\n07", 1): {}, strings.Replace(good, "\n7", "\n+7", 1): {}, strings.Replace(good, "\n7", "\nx", 1): {},
		strings.Replace(good, "A=", "B=", 1): {}, strings.Replace(good, "A=", "A", 1): {}, strings.Replace(good, zeros, zeros[:8], 1): {},
		strings.Replace(good, "time ", "", 1): {}, strings.Replace(good, "Z\n", "+00:00\n", 1): {}, good + "segment 3\n": {}, good + "x\n": {},
		strings.Replace(begin, "segment 3", "segment 03", 1): {}, strings.Replace(begin, "segment 3", "segment 0", 1): {},
		strings.Replace(begin, "segment 3", "segment -3", 1): {}, strings.Replace(begin, "segment ", "", 1): {}, begin + "x\n": {},
		strings.Replace(begin, "\n7", "\n0", 1): {}, strings.Replace(begin, "segment 3\n", "", 1): {},
	} {
		signed, err := note.Sign(&note.Note{Text: text}, key.Signer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseCheckpoint(append(signed, '\n'), key.Verifier); (err == nil) != want[0] {
			t.Errorf("%q as a checkpoint: %v", text, err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, beginName), signed, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadBeginning(dir, key.Verifier); (err == nil) != want[1] {
			t.Errorf("%q as a beginning: %v", text, err)
		}
	}
}
