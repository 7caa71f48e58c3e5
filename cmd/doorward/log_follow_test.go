package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon/history"
)

// TestTheOutcomeIsFoundWithTheAnswer: a caller that has its answer finds the outcome, which the log
// writes a moment later.
func TestTheOutcomeIsFoundWithTheAnswer(t *testing.T) {
	t.Parallel()
	dir, log := openLog(t)
	acts := fourActs(log.State().Seq + 1)
	write(t, log, acts[2:3])
	ended := *acts[3]
	ended.Ref = log.State().Seq
	log.Later(&ended)
	found, err := searchSettled(t.Context(), dir, history.Filter{}, 50)
	if err != nil || len(found.Entries) != 1 || found.Entries[0].Outcome != "ok" {
		t.Errorf("found %v, %v", found.Entries, err)
	}
}

// TestFollowingBeginsWhereTheSearchEnded: each act that ends after the search is printed once,
// however many acts were searched for and whether any was found.
func TestFollowingBeginsWhereTheSearchEnded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		filter history.Filter
		most   int
		want   string
	}{
		{"nothing found", history.Filter{Tool: "d"}, 50, "map[d:ok]"},
		{"one of two acts under way found", history.Filter{Older: true}, 1, "map[a:error c:ok d:ok]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir, log := openLog(t)
			acts := fourActs(log.State().Seq + 1)
			write(t, log, acts[:3])
			found, err := history.Search(t.Context(), dir, tc.filter, 0, tc.most)
			if err != nil || len(found.Entries) > tc.most {
				t.Fatal(found.Entries, err)
			}
			write(t, log, acts[3:])
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ends := map[string]string{}
			err = goOn(ctx, dir, tc.filter, found, func(e history.Entry) error {
				if ends[e.Name] += e.Outcome; fmt.Sprint(ends) == tc.want {
					cancel()
				}
				return nil
			})
			if got := fmt.Sprint(ends); got != tc.want || err != nil {
				t.Errorf("%s, %v, want %s", got, err, tc.want)
			}
		})
	}
}
