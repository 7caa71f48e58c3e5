package mail_test

import (
	"testing"

	"github.com/doorward/doorward/internal/messaging/mail"
)

// A session takes over the peer of the session that it replaces, with its name, and nothing
// else. A session that has a peer keeps it, also the name of an agent that was started.
func TestASessionTakesOverWhatItsFormerOneHad(t *testing.T) {
	onBoth(t, mail.Options{}, func(t *testing.T, b *bed) {
		planner := b.join("planner")
		s, err := planner.spawn(mail.SpawnDraft{Name: "tester"})
		must(t, err)
		o := owner("spawn:"+s.ID, "s-child")
		o.Spawn = s.ID
		child := b.joinAs(o, mail.Registration{})
		same(t, "the name of the child", child.Peer.Name, "planner/tester")
		for range 3 {
			got, err := b.Register(t.Context(), o, mail.Registration{Former: "s-before"}, nil, said)
			must(t, err)
			same(t, "the name of the child again", got.Peer.Name, "planner/tester")
			same(t, "no takeover", got.Takeover == nil, true)
		}
		next := o
		next.Session = "s-next"
		_, err = b.Register(t.Context(), next, mail.Registration{Former: o.Session}, nil, said)
		refused(t, err, mail.NameInUse)
		must(t, b.End(t.Context(), []string{o.Session, planner.Owner.Session}))
		got, err := b.Register(t.Context(), next, mail.Registration{Former: o.Session}, nil, said)
		must(t, err)
		same(t, "the child's peer", got.Peer.ID, child.Peer.ID)
		same(t, "the child's name", got.Peer.Name, "planner/tester")

		heir := owner("uid:1000", "heir")
		for what, c := range map[string]struct {
			o    mail.Owner
			want string
		}{
			"another principal":  {owner("uid:1001", "heir"), mail.NotRegistered},
			"the child's peer":   {heir, mail.NotRegistered},
			"a session of none":  {heir, mail.NotRegistered},
			"what another took":  {next, ""},
			"a name is not made": {owner("uid:1000", "other"), mail.NotRegistered},
		} {
			former := map[string]string{"another principal": planner.Owner.Session, "the child's peer": "s-next",
				"what another took": "s-next"}[what]
			if former == "" {
				former = "unknown"
			}
			_, err := b.Register(t.Context(), c.o, mail.Registration{Former: former, Name: "made"}, nil, said)
			refused(t, err, c.want)
		}
		got, err = b.Register(t.Context(), heir, mail.Registration{Former: planner.Owner.Session, Name: "made"}, nil, said)
		must(t, err)
		same(t, "the peer", got.Peer.ID, planner.Peer.ID)
		same(t, "the name", got.Peer.Name, "planner")
		_, err = b.Register(t.Context(), owner("uid:1000", "late"), mail.Registration{Former: planner.Owner.Session}, nil, said)
		refused(t, err, mail.Fenced)
		b.sound()
	})
}
