package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// writeForEver is the process that is killed: it writes with eight writers
// into three boxes and prints an id once it is acknowledged, with one system
// call.
func writeForEver(args []string) int {
	p := place{dir: args[0], dsn: args[1]}
	db, err := Open(context.Background(), p.options(Options{}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fail := make(chan error)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s.%d.%d", args[2], w, i)
				err := db.Write(context.Background(), func(tx *Tx) error {
					tx.Signal("mail")
					return send(tx, fmt.Sprint("box", (w+i)%3), id)
				})
				if err == nil {
					_, err = fmt.Println(id)
				}
				if err != nil {
					fail <- err
				}
			}
		}()
	}
	fmt.Fprintln(os.Stderr, <-fail)
	return 1
}

// Each write that was acknowledged to a process is in the database once, after
// twelve kills in the middle of writing. The numbers of each box have no gap.
func TestNothingAcknowledgedIsLostWhenAWriterIsKilled(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		db := p.open(t, Options{})
		must(t, db.Write(t.Context(), func(tx *Tx) error {
			return errors.Join(put("box0", 0)(tx), put("box1", 0)(tx), put("box2", 0)(tx))
		}))
		must(t, db.Close())
		acknowledged := make(map[string]bool)
		for round := range 12 {
			before := len(acknowledged)
			for _, id := range killAWriter(t, p, fmt.Sprint(round)) {
				acknowledged[id] = true
			}
			if len(acknowledged) == before {
				t.Error("nothing was written in this round")
			}
			checkAfterKill(t, p, acknowledged)
		}
		t.Logf("%d acknowledged", len(acknowledged))
	})
}

func killAWriter(t *testing.T, p place, mark string) (acknowledged []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "write-for-ever", p.dir, p.dsn, mark)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	r := bufio.NewReader(out)
	for first := true; ; first = false {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			break
		}
		must(t, err)
		acknowledged = append(acknowledged, strings.TrimSpace(line))
		if first {
			time.AfterFunc(time.Duration(20+rand.IntN(200))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		}
	}
	if err := cmd.Wait(); err == nil || complaint.Len() > 0 {
		t.Fatalf("the writer was not killed: %v %s", err, complaint.String())
	}
	return acknowledged
}

func checkAfterKill(t *testing.T, p place, acknowledged map[string]bool) {
	t.Helper()
	db := p.open(t, Options{})
	defer db.Close()
	times := make(map[string]int)
	must(t, db.Read(t.Context(), func(tx *Tx) error {
		return tx.Each(func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			times[id]++
			return err
		}, `SELECT id FROM log`)
	}))
	for id := range acknowledged {
		if times[id] != 1 {
			t.Errorf("%s was acknowledged and is there %d times", id, times[id])
		}
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	if n := number(t, db, `SELECT count(*) FROM kv WHERE n <> (SELECT count(DISTINCT seq) FROM log WHERE box = k)
		OR n <> (SELECT COALESCE(max(seq), 0) FROM log WHERE box = k)`); n != 0 {
		t.Errorf("%d boxes have a gap", n)
	}
	if p.dsn == "" && number(t, db, `SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'`) != 0 {
		t.Error("the file is damaged")
	}
}
