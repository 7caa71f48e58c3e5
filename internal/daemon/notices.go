package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/doorward/doorward/internal/base/durable"
	"github.com/doorward/doorward/internal/base/secret"
	"github.com/doorward/doorward/internal/daemon/config"
	"github.com/doorward/doorward/internal/daemon/desktop"
	"github.com/doorward/doorward/internal/daemon/notice"
	"github.com/doorward/doorward/internal/relay/approval"
	"github.com/doorward/doorward/internal/upstream/egress"
)

// webhookSecret is the file of the secret that signs webhooks if none is configured.
const webhookSecret = "webhook.secret"

// openNotices makes the notifier that tells the operator of held calls.
func openNotices(d *Daemon, c config.ApprovalsNotify) (func(approval.Question), error) {
	o := notice.Options{Command: c.Command, Run: desktop.Notify, Log: d.log}
	if c.Desktop == "auto" {
		o.Desktop = desktopBus()
	}
	if !c.Webhook.Empty() {
		w, err := webhook(d.o.StateDir, c)
		if err != nil {
			return nil, fmt.Errorf("approvals.notify.webhook: %w", err)
		}
		w.Client = egress.NewClient(egress.Options{AllowPrivate: c.Private, Origin: w.origin, Proxy: d.o.Config.Egress.Proxy})
		o.Webhook = &w.Webhook
	}
	n := notice.New(o)
	d.onClose(n.Close)
	return func(q approval.Question) {
		n.Tell(notice.Call{N: q.N, Message: q.Message != "", Expires: q.Expires, Client: q.Client, Principal: q.Principal, Server: q.Server, Tool: q.Tool, Action: q.Action, Args: q.Args, Rest: q.Rest})
	}, nil
}

// receiver is a webhook with the origin that may be dialled for it.
type receiver struct {
	notice.Webhook
	origin string
}

func webhook(state string, c config.ApprovalsNotify) (w receiver, err error) {
	var u *url.URL
	if u, err = egress.CheckURL(c.Webhook.Reveal()); err != nil {
		return w, err
	}
	w = receiver{notice.Webhook{URL: c.Webhook, Secret: c.Secret, Args: c.Arguments, Pauses: notice.Pauses()}, egress.Origin(u)}
	if !c.Secret.Empty() {
		return w, nil
	}
	b, err := durable.Secret(filepath.Join(state, webhookSecret), 1<<10, notice.NewSecret)
	if err != nil {
		return w, fmt.Errorf("the secret %w", err)
	}
	w.Secret = secret.New(strings.TrimSpace(string(b)))
	_, err = notice.Key(w.Secret.Reveal())
	return w, err
}

// desktopBus returns the address of the session bus; "": there is none.
func desktopBus() string {
	address := secret.SessionBus(os.LookupEnv)
	if path, ok := strings.CutPrefix(address, "unix:path="); ok {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return ""
		}
	}
	return address
}
