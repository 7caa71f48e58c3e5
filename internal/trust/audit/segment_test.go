package audit

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestSegmentNumbersHaveOneSpelling(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{
		"00000001.jsonl": 1, "00000002.jsonl": 2, "99999999.jsonl": 99999999, "100000000.jsonl": 100000000,
		"00000000.jsonl": 0, "0000001.jsonl": 0, "000000001.jsonl": 0, "-0000001.jsonl": 0, "+0000001.jsonl": 0, "0000000x.jsonl": 0,
		"00000001": 0, "00000001.json": 0, ".jsonl": 0, "": 0, "checkpoints": 0,
	} {
		if got := SegmentNumber(name); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
}

// TestTheLastLineIsFound: also the longest one, and it is not guessed in a longer text.
func TestTheLastLineIsFound(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", MaxLine-1) + "\n"
	for name, c := range map[string]struct {
		text, want string
		damaged    bool
	}{
		"nothing":                         {"", "", false},
		"an empty line":                   {"\n", "", false},
		"one":                             {"a\n", "a", false},
		"the last of two":                 {"a\nbc\n", "bc", false},
		"an empty one behind another":     {"a\n\n", "", false},
		"the longest":                     {long, long[:len(long)-1], false},
		"the longest behind another":      {"b\n" + long, long[:len(long)-1], false},
		"too long":                        {"a" + long, "", true},
		"too long, behind another":        {"b\na" + long, "", true},
		"a short one behind a long one":   {"a" + long + "c\n", "c", false},
		"one shorter, behind a character": {"b\n" + long[1:], long[1 : len(long)-1], false},
	} {
		got, err := lastLine(strings.NewReader(c.text), int64(len(c.text)))
		if errors.Is(err, ErrDamaged) != c.damaged || err != nil && !c.damaged || string(got) != c.want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if (got == nil) != (c.text == "" || c.damaged) {
			t.Errorf("%s: nil is %v", name, got == nil)
		}
	}
	if _, err := lastLine(strings.NewReader("a\n"), 3); err == nil {
		t.Error("a file that is shorter than its size has a last line")
	}
}

func TestTheLastNewlineIsFoundOverBlocks(t *testing.T) {
	t.Parallel()
	for _, before := range []int{0, 1, 2, MaxLine - 1, MaxLine, MaxLine + 1} {
		for _, behind := range []int{0, 1, MaxLine - 1, MaxLine, MaxLine + 1, 3 * MaxLine} {
			text := strings.Repeat("a", before) + "\n" + strings.Repeat("\x00", behind)
			got, err := LastNewline(strings.NewReader(text), int64(len(text)))
			if got != int64(before+1) || err != nil {
				t.Errorf("%d bytes before, %d behind: %d, %v", before, behind, got, err)
			}
			none := strings.Repeat("a", before+behind)
			if got, err := LastNewline(strings.NewReader(none), int64(len(none))); got != 0 || err != nil {
				t.Errorf("%d bytes without one: %d, %v", len(none), got, err)
			}
		}
	}
	if _, err := LastNewline(strings.NewReader("a\n"), 3); err == nil {
		t.Error("a file that is shorter than its size has a last newline")
	}
}

// chain returns lines of more than n bytes.
func chain(n int) (text []byte) {
	last := genesis()
	for len(text) <= n {
		r := act()
		r.Resource = strings.Repeat("r", 500)
		text = appendLine(text, newBody(r, time.Unix(0, 0)), &last, new(callers))
	}
	return text
}

// TestAHoleIsCutOffBehindWhatIsOnTheDisk: with all that follows, from the line in which it
// begins. Before a record that is on the disk no hole is looked for.
func TestAHoleIsCutOffBehindWhatIsOnTheDisk(t *testing.T) {
	t.Parallel()
	text := chain(3*holeChunk + 1000)
	size := len(text)
	end := func(i int) int64 { return int64(bytes.LastIndexByte(text[:i], '\n') + 1) }
	newest := firstNumber(text[size-holeChunk:])
	for name, c := range map[string]struct {
		holes  []int
		synced uint64
		want   int64
	}{
		"no hole":                            {nil, 0, int64(size)},
		"in the first line":                  {[]int{10}, 0, 0},
		"at the beginning":                   {[]int{0}, 0, 0},
		"in the first part":                  {[]int{5000}, 0, end(5000)},
		"in a middle part":                   {[]int{size / 2}, 0, end(size / 2)},
		"in the last line":                   {[]int{size - 5}, 0, end(size - 5)},
		"at the end":                         {[]int{size - 1}, 0, end(size - 1)},
		"in two parts":                       {[]int{size - 5, 9000}, 0, end(9000)},
		"twice in one part":                  {[]int{size - 5, size - 7000}, 0, end(size - 7000)},
		"before the part with the record":    {[]int{5000}, newest + 5, int64(size)},
		"before the part that it begins":     {[]int{size - holeChunk - 5000}, newest, int64(size)},
		"in the part before the record":      {[]int{size - holeChunk - 5000}, newest - 1, end(size - holeChunk - 5000)},
		"behind a record of an earlier part": {[]int{size - 5000}, 2, end(size - 5000)},
	} {
		with := bytes.Clone(text)
		for _, i := range c.holes {
			with[i] = 0
		}
		got, err := withoutHoles(bytes.NewReader(with), int64(size), c.synced)
		if got != c.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", name, got, err, c.want)
		}
	}
	if got, err := withoutHoles(bytes.NewReader(nil), 0, 0); got != 0 || err != nil {
		t.Errorf("an empty file: %d, %v", got, err)
	}
}

func TestTheFirstNumberIsThatOfAWholeLine(t *testing.T) {
	t.Parallel()
	text := chain(3000)
	second := bytes.IndexByte(text, '\n') + 1
	for name, c := range map[string]struct {
		part []byte
		want uint64
	}{
		"the beginning":         {text, 1},
		"from the second line":  {text[second:], 2},
		"one line":              {text[:second], 1},
		"a part at the end":     {text[:second+5], 1},
		"only a part of a line": {text[5 : second-5], math.MaxUint64},
		"nothing":               {nil, math.MaxUint64},
		"only ends of lines":    {[]byte("\n\n"), math.MaxUint64},
	} {
		if got := firstNumber(c.part); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	for i := 1; i < second; i++ {
		if got := firstNumber(text[i:]); got != 2 {
			t.Errorf("from byte %d of the first line: %d", i, got)
		}
	}
}

// TestATimeHasOneShape: each character is a digit where timeShape has one, and the same as
// there elsewhere.
func TestATimeHasOneShape(t *testing.T) {
	t.Parallel()
	good := Stamp(time.Unix(1234567890, 987654321))
	for _, text := range []string{good, timeShape, "9999-99-99T99:99:99.999999Z"} {
		if !isTime([]byte(text)) {
			t.Errorf("%s is refused", text)
		}
	}
	for _, text := range []string{"", good[:len(good)-1], good + "Z"} {
		if isTime([]byte(text)) {
			t.Errorf("%s passed", text)
		}
	}
	for i := range good {
		for _, c := range []byte("/:0x\x00") {
			text := []byte(good)
			text[i] = c
			digit := timeShape[i] == '0'
			if want := digit && c == '0' || c == good[i]; isTime(text) != want {
				t.Errorf("%q is a time: %v", text, !want)
			}
		}
	}
}
