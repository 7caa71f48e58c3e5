package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/doorward/doorward/internal/daemon/config"
)

func TestSizesAndNetworks(t *testing.T) {
	t.Parallel()
	c := good(t, "doorward.yaml", `mcpServers:
  a: {command: npx, doorward: {limits: {memory: 0}, network: none}}
  b: {command: npx, doorward: {limits: {memory: 512MiB}, network: inherit}}
  c: {command: npx, doorward: {limits: {memory: 1073741824}, sandbox: strict, network: [53, 8443], read: [data, "${HOME}/.kube"], write: [/srv/x]}}
`)
	a, b, d := c.Servers["a"].Doorward, c.Servers["b"].Doorward, c.Servers["c"].Doorward
	got := []any{a.Limits.Memory, a.Network, a.Network.Ports(), b.Limits.Memory, b.Network.Ports(), d.Limits.Memory, d.Network.Ports(), d.Read, d.Write}
	want := []any{config.Size(0), config.Network("none"), []uint16(nil), config.Size(512 << 20), []uint16(nil),
		config.Size(1 << 30), []uint16{53, 8443}, []string{"/etc/doorward/data", "/home/ada/.kube"}, []string{"/srv/x"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
