package doortest

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// sdk are the paths of the programs that SDK has built.
var sdk = struct {
	sync.Mutex
	paths map[string]string
}{paths: make(map[string]string)}

// SDK returns the path of a program of test/sdk, which go keeps in its cache of builds: sdk, or
// everything-server, the conformance server of the official Go SDK.
func SDK(t testing.TB, name string) string {
	t.Helper()
	sdk.Lock()
	defer sdk.Unlock()
	if sdk.paths[name] == "" {
		cmd := exec.Command("go", "-C", filepath.Join(ModuleRoot(t), "test", "sdk"), "tool", "-n", name)
		var failed strings.Builder
		cmd.Stderr = &failed
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("building %s: %v\n%s", name, err, failed.String())
		}
		sdk.paths[name] = strings.TrimSpace(string(out))
	}
	return sdk.paths[name]
}

// AskSDK runs a command of the program sdk and decodes the JSON that it prints. test/sdk/main.go
// documents the commands.
func AskSDK(t testing.TB, into any, args ...string) {
	t.Helper()
	cmd := exec.Command(SDK(t, "sdk"), args...)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("the SDK, %s: %v\n%s%s", args, err, out, failed.String())
	}
}

// Challenge is a challenge in the form in which the program sdk prints it.
type Challenge struct {
	Scheme string
	Params map[string]string
}

// ServeSDK runs a server of the official Go SDK until the test ends, and returns its URL.
// test/sdk/serve.go documents the flags.
func ServeSDK(t testing.TB, flags ...string) string {
	t.Helper()
	cmd := exec.Command(SDK(t, "sdk"), append([]string{"serve"}, flags...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // its end is that of the server, even if this process is killed
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the server of the SDK does not start")
	}
	return lines.Text()
}
