package console

import (
	"context"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/daemon/history"
)

// BenchmarkTheHourUnderLoad is what one refresh of the page Now costs while 2,500
// calls a second are made: 5,000 acts with their outcomes.
func BenchmarkTheHourUnderLoad(b *testing.B) {
	dir := logOf(b, 5000)
	for b.Loop() {
		if _, err := newHour(dir, time.Now).read(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAPageOfActivity is what one refresh of the page Activity costs.
func BenchmarkAPageOfActivity(b *testing.B) {
	dir := logOf(b, 5000)
	for b.Loop() {
		if _, err := history.Search(context.Background(), dir, history.Filter{}, 0, perPage); err != nil {
			b.Fatal(err)
		}
	}
}
