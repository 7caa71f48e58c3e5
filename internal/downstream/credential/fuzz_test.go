package credential

import (
	"bytes"
	"testing"
	"time"
)

// FuzzParse: a file is accepted only in the exact bytes that Write would write for it.
func FuzzParse(f *testing.F) {
	good, err := encode(File{Token: "dws1.a.b.c", SessionID: "0123456789abcdef", Bind: "b/1@2", Expires: time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"token":"a","session_id":"0123456789abcdef","bind":"","expires":"2030-01-02T03:04:05+07:00"}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parse(b)
		if err != nil {
			if got != (File{}) {
				t.Errorf("refused, and gives %+v", got)
			}
			return
		}
		if again, err := encode(got); err != nil || !bytes.Equal(again, b) || !got.valid() {
			t.Errorf("%q is read as %+v, which is written %q", b, got, again)
		}
	})
}
