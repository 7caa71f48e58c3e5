package process

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestServerSeesItsEnvironmentAndNothingMore(t *testing.T) {
	t.Setenv("DATABASE_URL", "canary")
	s := newStage(t, Options{})
	want := append(Environment(map[string]string{"API_KEY": "k"}), markVar+"="+s.mark)
	p, err := s.Start(Spec{Server: "env", Path: must(Resolve("env", os.Getenv("PATH"))), Env: want})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stdout.Close()
	var got []string
	for range want {
		got = append(got, s.line(p))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	s.end(p, 5*time.Second)
	if n, _ := p.Stdout.Read(make([]byte, 1)); n != 0 {
		t.Fatal("there is more")
	}
}

func TestAServerWithoutEnvGetsAnEmptyEnvironment(t *testing.T) {
	t.Setenv("DATABASE_URL", "canary")
	s := newStage(t, Options{})
	p, err := s.Start(Spec{Server: "env", Path: must(Resolve("env", os.Getenv("PATH")))})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stdout.Close()
	s.end(p, 5*time.Second)
	if b := make([]byte, 4096); true {
		if n, _ := p.Stdout.Read(b); n != 0 {
			t.Fatalf("nil Env became %q", b[:n])
		}
	}
}
