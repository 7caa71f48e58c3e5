package lookalike

import "testing"

func TestWhatLooksAlike(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"read_file", "Read_File"}, {"read_file", "rеad_file"}, {"read_file", "ｒｅａｄ_file"}, {"read", "𝐫𝐞𝐚𝐝"},
		{"Αdd", "Add"}, {"pay", "рау"}, {"résumé", "resume"}, {"re\u0301sume", "resume"}, {"AI_list", "Al_list"},
		{"tool1", "tooll"}, {"v0", "vO"}, {"Straße", "STRAßE"}, {"a-b", "a‐b"}, {"scope", "ѕсоре"}, {"K", "K"},
		{"👩💻", "👩\u200d💻"}, {"⚠", "⚠\ufe0f"}, {"کتابها", "کتاب\u200cها"},
	} {
		if !Alike(Forms(pair[0]), Forms(pair[1])) {
			t.Errorf("%q and %q are told apart: %q %q", pair[0], pair[1], Forms(pair[0]), Forms(pair[1]))
		}
	}
	for _, pair := range [][2]string{
		{"read_file", "write_file"}, {"tail", "tall"}, {"get", "set"}, {"a_b", "ab"}, {"list", "lists"}, {"漢", "字"}, {"add", "sub"}, {"mail", "mall"},
	} {
		if Alike(Forms(pair[0]), Forms(pair[1])) {
			t.Errorf("%q and %q are taken for one", pair[0], pair[1])
		}
	}
}

// TestShownLeavesInvisibleCharactersOut: white space, controls and ignorable characters.
func TestShownLeavesInvisibleCharactersOut(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"read_file", "read _file", " read_file\n", "read\u200b_file", "\u202eread_file", "read_\u00adfile", "read\u3164_file", "re\ufe0fad_file", "re\x00ad_file", "re\u00a0ad_file"} {
		if got, want := Shown(name), Forms("read_file"); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if Alike(Shown("read_file"), Shown("read-file")) {
		t.Error("visible characters are left out")
	}
}
