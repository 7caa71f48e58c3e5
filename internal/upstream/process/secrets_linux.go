package process

import "slices"

// homeSecrets lists private files of programs in a home directory: keys, tokens, cookies and histories. They and the
// credentials of profiles stay hidden if a whole home, or a directory above them, is granted. A server that needs one
// of them names it in read or write.
var homeSecrets = []string{
	".ssh", ".gnupg", ".password-store", ".pki", ".local/share/keyrings", ".local/share/kwalletd", ".config/age", ".config/sops",
	".config/op", ".1password", ".config/Bitwarden", ".config/Bitwarden CLI", ".vault-token",
	".aws", ".azure", ".config/gcloud", ".oci", ".aliyun", ".config/doctl", ".config/hcloud", ".config/rclone", ".terraform.d",
	".kube", ".docker", ".config/containers", ".local/share/containers", ".colima", ".lima", ".rd",
	".netrc", ".git-credentials", ".config/git/credentials", ".config/gh", ".config/hub", ".config/glab-cli", ".pypirc",
	".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".pgpass", ".my.cnf", ".mylogin.cnf",
	".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".local/share/opencode/auth.json", ".config/github-copilot",
	".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge",
	".config/vivaldi", ".config/opera",
	".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history",
	".local/share/fish/fish_history",
	".Xauthority", ".ICEauthority",
	".dotnet/corefx", ".aspnet/DataProtection-Keys", ".microsoft/usersecrets",
	".config/doorward", ".local/state/doorward", ".local/share/doorward",
}

// resolvers resolve names for any process, and so carry data out of a network namespace.
var resolvers = []string{"/run/systemd/resolve", "/run/nscd", "/run/avahi-daemon", "/run/resolvconf", "/run/NetworkManager/resolv.conf"}

// rootSecrets can be read only by root, and are hidden if the daemon runs as root.
var rootSecrets = []string{
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private", "/etc/sudoers", "/etc/sudoers.d",
	"/etc/wireguard", "/etc/kubernetes", "/etc/doorward", "/etc/NetworkManager/system-connections", "/etc/krb5.keytab", "/etc/crypttab",
	"/etc/ppp", "/etc/openvpn", "/etc/letsencrypt", "/etc/pki/tls/private", "/etc/security/opasswd", "/boot",
}

// systemDirs lists the directories that every server may read and execute. The rest of the host's root is absent.
var systemDirs = slices.Concat([]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store",
	"/nix/var/nix/profiles", "/gnu/store", "/var/cache/fontconfig", "/var/lib/ca-certificates", "/run/current-system", "/run/opengl-driver"},
	pathsBelow("/home/linuxbrew/.linuxbrew", homebrew))

// systemLinks lists paths that are links on many systems and lead to directories of which a server has its own.
var systemLinks = []string{"/var/run", "/var/lock"}

// toolchains lists directories of a home that hold programs and no secrets, from version managers and installers.
// Servers may read and execute them. Caches, stores and settings are not among them.
var toolchains = slices.Concat([]string{
	".local/bin", "bin", ".nvm", ".volta", ".asdf", ".fnm", ".local/share/fnm", ".local/share/mise", ".nodenv", ".n",
	".pyenv", ".local/share/uv/python", ".rbenv", ".rustup", ".cargo/bin", ".bun/bin", ".deno/bin", "go/bin", ".sdkman/candidates",
	".nix-profile", ".local/state/nix/profiles", "miniconda3", "anaconda3", "miniforge3", ".cache/ms-playwright", ".cache/puppeteer",
}, pathsBelow(".linuxbrew", homebrew), pathsBelow(".dotnet", dotnet), pathsBelow(".npm-global", npmGlobal))

// homebrew lists the parts of an installation of Homebrew that hold programs, and the certificates and settings that
// these need. Its var and the rest of its etc hold the data and the settings of services.
var homebrew = []string{"bin", "sbin", "lib", "libexec", "include", "share", "opt", "Cellar", "Caskroom", "Homebrew", "etc/ca-certificates",
	"etc/openssl@3/cert.pem", "etc/openssl@3/certs", "etc/openssl@3/openssl.cnf", "etc/fonts", "etc/php", "etc/odbcinst.ini", "etc/gitconfig", "Library"}

// dotnet lists the parts of ~/.dotnet that hold programs. Its corefx holds private keys.
var dotnet = []string{"dotnet", "host", "sdk", "shared", "packs", "templates", "sdk-manifests", "metadata", "library-packs", "tools", "dnx"}

// npmGlobal lists the parts of ~/.npm-global that hold programs. Its etc holds settings of npm.
var npmGlobal = []string{"bin", "lib", "share"}

// npmPrefixes lists the prefixes of npm that installers and version managers make in a home. A star matches any name.
// npm reads the settings of a prefix, and writes them with `npm config set --location=global`, in etc/npmrc
// (https://docs.npmjs.com/cli/v11/configuring-npm/npmrc).
var npmPrefixes = []string{".npm-global", ".local", ".n", ".linuxbrew", ".nvm/versions/node/*", ".volta/tools/image/node/*",
	".asdf/installs/nodejs/*", ".fnm/node-versions/*/installation", ".local/share/fnm/node-versions/*/installation",
	".local/share/mise/installs/node/*", ".nodenv/versions/*", "miniconda3", "miniconda3/envs/*", "anaconda3", "anaconda3/envs/*",
	"miniforge3", "miniforge3/envs/*"}

// dns is the port of name resolution.
const dns = 53

// null is the null device.
const null = "/dev/null"
