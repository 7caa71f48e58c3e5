package listen

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// limits are deadlines for reads, from the time at which they are set.
var limits = map[string]func() time.Time{
	"none":      func() time.Time { return time.Time{} },
	"past":      func() time.Time { return time.Unix(1, 0) },
	"now":       time.Now,
	"a second":  func() time.Time { return time.Now().Add(time.Second) },
	"a minute":  func() time.Time { return time.Now().Add(time.Minute) },
	"unchanged": nil,
}

// readEnds describes what reads of a connection return and when, if the deadlines are set before a
// first read, while it waits, and before a second one. The other end writes after each of them has
// waited for an hour, or, with early, before it begins.
func readEnds(limited, other net.Conn, before, during, after string, early bool) (ends []string) {
	begin := time.Now()
	set := func(name string) {
		if f := limits[name]; f != nil {
			ends = append(ends, fmt.Sprint(limited.SetReadDeadline(f())))
		}
	}
	defer other.Close()
	defer limited.Close()
	writes := make(chan struct{}, 2)
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-writes:
				_, _ = other.Write([]byte("x"))
			case <-over:
				return
			}
		}
	}()
	for _, at := range [][2]string{{before, during}, {after, "unchanged"}} {
		set(at[0])
		time.Sleep(10 * time.Second)
		late := time.Hour
		if early {
			late = 0
		}
		time.AfterFunc(late, func() { writes <- struct{}{} })
		synctest.Wait()
		done := make(chan string)
		go func() {
			n, err := limited.Read(make([]byte, 1))
			done <- fmt.Sprint(n, err, time.Since(begin))
		}()
		time.Sleep(20 * time.Second)
		set(at[1])
		ends = append(ends, <-done)
	}
	return ends
}

// A deadline ends the reads of a connection as it does those of the connection inside, at the same
// time, whether it is set before a read or while one waits.
func TestADeadlineEndsReadsAsThatOfTheInnerConnection(t *testing.T) {
	t.Parallel()
	for before := range limits {
		for during := range limits {
			for after := range limits {
				for _, early := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						inner, other := net.Pipe()
						want := readEnds(inner, other, before, during, after, early)
						inner, other = net.Pipe()
						got := readEnds(&conn{Conn: inner, origin: Origin{Listener: &Listener{}}}, other, before, during, after, early)
						if d := cmp.Diff(want, got); d != "" {
							t.Errorf("%s, %s, %s, early %v: %s", before, during, after, early, d)
						}
					})
				}
			}
		}
	}
}

// Of the deadlines that are set between two reads, the inner connection gets the last one.
func TestADeadlineIsForTheNextRead(t *testing.T) {
	t.Parallel()
	d := &deadlines{}
	c := &conn{Conn: d}
	last := time.Now().Add(time.Hour)
	for _, at := range []time.Time{{}, time.Now(), {}, last} {
		if err := c.SetReadDeadline(at); err != nil || len(d.set) > 0 {
			t.Fatal(d.set, err)
		}
	}
	for range 2 {
		_, _ = c.Read(nil)
	}
	_ = c.SetReadDeadline(time.Time{})
	if want := []time.Time{last}; !cmp.Equal(want, d.set) {
		t.Errorf("%v, want %v", d.set, want)
	}
}

// The deadline of a connection that was closed cannot be set: who sets it in order to serve a
// request learns that the connection has ended.
func TestAClosedConnectionHasNoDeadline(t *testing.T) {
	t.Parallel()
	_, c := oneAccepted(t)
	before := [...]error{c.SetReadDeadline(time.Time{}), c.SetDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})}
	c.Close()
	after := [...]error{c.SetReadDeadline(time.Time{}), c.SetDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})}
	for i := range before {
		if before[i] != nil || after[i] == nil {
			t.Errorf("%d: %v, closed %v", i, before[i], after[i])
		}
	}
}
