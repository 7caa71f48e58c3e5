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
