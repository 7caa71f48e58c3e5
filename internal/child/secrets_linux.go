package child

import (
	"path/filepath"
	"slices"
)

// homeSecrets are what programs keep in a home directory that is nobody else's business: keys, tokens, cookies and
// histories. A server that needs one of them names it in read or write. Not here, on purpose: ~/.npmrc, without which npx
// asks the wrong registry, ~/.npm and ~/.cache, from which it runs, and ~/.mcp-auth, where mcp-remote keeps what it needs.
var homeSecrets = []string{
	".ssh", ".gnupg", ".password-store", ".pki", ".local/share/keyrings", ".local/share/kwalletd", ".config/age", ".config/sops",
	".config/op", ".1password", ".config/Bitwarden", ".config/Bitwarden CLI", ".vault-token",
	".aws", ".azure", ".config/gcloud", ".oci", ".aliyun", ".config/doctl", ".config/hcloud", ".config/rclone", ".terraform.d",
	".kube", ".docker", ".config/containers", ".local/share/containers", ".colima", ".lima", ".rd",
	".netrc", ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli", ".pypirc",
	".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".pgpass", ".my.cnf", ".mylogin.cnf",
	".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".config/github-copilot",
	".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge",
	".config/vivaldi", ".config/opera",
	".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history",
	".local/share/fish/fish_history",
	".Xauthority", ".ICEauthority",
	".config/doorward", ".local/state/doorward", ".local/share/doorward",
}

// engines are sockets through which a program has things done outside of whatever it is shut in. The directory of a user's
// own runtime files is among them: systemd, the session bus, keyrings and agents all listen there.
var engines = []string{
	"/run/user", "/run/dbus", "/run/systemd/private", "/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman", "/run/crio",
	"/run/libvirt", "/run/WSL", "/run/snapd.socket", "/run/snapd-snap.socket", "/run/pcscd", "/run/screen", "/run/tmux",
	"/var/run/docker.sock", "/var/run/dbus", "/var/snap/lxd/common/lxd/unix.socket", "/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket",
}

// resolvers answer questions about names for whoever asks, and so carry words out of a network namespace.
var resolvers = []string{"/run/systemd/resolve", "/run/nscd", "/run/avahi-daemon", "/var/run/nscd"}

// rootSecrets can be read by root alone, and are hidden when that is who we are.
var rootSecrets = []string{
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private", "/etc/sudoers", "/etc/sudoers.d",
	"/etc/wireguard", "/etc/kubernetes", "/etc/doorward", "/etc/NetworkManager/system-connections", "/etc/krb5.keytab", "/boot",
}

// strictCovers are directories of which strict leaves nothing but what is granted. Landlock keeps files in them from being
// opened; covering them takes the sockets away too, which Landlock does not rule over before its ninth version.
var strictCovers = []string{"/home", "/root", "/run", "/srv", "/mnt", "/media", "/var/lib", "/var/run", "/var/spool", "/var/mail", "/boot"}

// strictKeeps are what the system's own libraries need of those.
var strictKeeps = []string{"/var/lib/ca-certificates", "/run/current-system", "/run/opengl-driver", "/run/resolvconf", "/run/NetworkManager/resolv.conf"}

// systemDirs are what a program may read and execute under strict.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store", "/gnu/store",
	"/sys", "/var/cache/fontconfig", "/var/lib/ca-certificates"}

// cover is a path that the server must not see as it is.
type cover struct {
	path string
	own  bool // Doorward's: hidden whatever is named
	kind int
}

// What is seen in the place of a covered directory. In the place of anything else it is the null device.
const (
	empty   = iota // nothing, to read only
	scratch        // nothing yet, to write
	devices        // the devices that every program expects
)

// covers lists what the plan hides.
func covers(p *plan, root bool) []cover {
	var all []cover
	add := func(kind int, own bool, paths ...string) {
		for _, path := range paths {
			all = append(all, cover{path: path, own: own, kind: kind})
		}
	}
	add(empty, true, p.Hide...)
	for _, home := range p.Homes {
		for _, name := range homeSecrets {
			add(empty, false, filepath.Join(home, name))
		}
	}
	add(empty, false, engines...)
	if p.Network == NetworkNone {
		add(empty, false, resolvers...)
	}
	if root {
		add(empty, false, rootSecrets...)
		keys, _ := filepath.Glob("/etc/ssh/ssh_host_*_key") // the pattern is well-formed
		add(empty, false, keys...)
	}
	if p.Mode == Strict {
		add(scratch, false, p.Homes...)
		add(empty, false, strictCovers...)
	}
	add(scratch, false, "/tmp", "/dev/shm")
	add(devices, false, "/dev")
	return all
}

// dns is the port that stands for names being looked up.
const dns = 53

// kept lists what strict shows of the directories it covers.
func kept(p *plan) []string {
	if p.Mode != Strict {
		return nil
	}
	all := slices.Clone(strictKeeps)
	if p.Network != NetworkNone && (p.Network != NetworkPorts || slices.Contains(p.Ports, dns)) {
		all = append(all, resolvers...)
	}
	return all
}
