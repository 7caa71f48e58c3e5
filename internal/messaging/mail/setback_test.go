package mail_test

import (
	"errors"
	"testing"
	"time"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// However the clock was set, the same text is refused at most until the time that the refusal
// names, which is at most twice the time of a repeat away. A message of the operator is never a
// repeat.
func TestARepeatEndsWhenItsRefusalSays(t *testing.T) {
	for _, step := range []time.Duration{0, 10 * time.Second, -time.Second, -29 * time.Second, -31 * time.Second, -time.Hour, -30 * 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			onSQLite(t, mail.Options{}, func(t *testing.T, b *bed) {
				a, z := b.join("a"), b.join("z")
				mine := mail.Draft{Body: "mine", To: []mail.Recipient{z.to()}}
				a.send(draft("the same", z))
				_, err := b.Desk().Send(t.Context(), mine, said)
				must(t, err)
				b.pass(step)
				_, err = b.Desk().Send(t.Context(), mine, said)
				must(t, err)
				_, err = a.try(draft("the same", z))
				var e *mail.Error
				if near := step > -30*time.Second; errors.As(err, &e) != near {
					t.Fatalf("after the step: %v", err)
				} else if !near {
					return
				}
				refused(t, err, mail.DuplicateSuppressed)
				if e.Retry <= 0 || e.Retry > time.Minute {
					t.Errorf("try again in %s", e.Retry)
				}
				b.pass(e.Retry - time.Second)
				_, err = a.try(draft("the same", z))
				refused(t, err, mail.DuplicateSuppressed)
				b.pass(time.Second)
				a.send(draft("the same", z))
			})
		})
	}
}
