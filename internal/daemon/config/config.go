// Package config turns doorward.yaml into a Config, or into a list of all its problems.
//
// A configuration determines what runs on a machine, so a misspelt, duplicate or unset value must not be
// guessed. Invariant: a Config that Load returns is complete and valid in all its parts, each server that
// is not valid carries the reason in Refused, and nothing that was read is ignored without a Problem with
// its file, line and key.
//
// The structs of this file are the manual. The tag `doc` of a field is its text in docs/configuration.md
// and in the JSON Schema, and Load enforces the tags `default`, `enum`, `min` and `max`, so documentation
// and behaviour agree. Further tags: `refs:"any"` allows references to secrets, `refs:"env"` references to
// variables only, `path:"a|b"` marks a path that is relative to the directory of the file unless it is one
// of the words, and `cost:"server"` marks a value whose problem refuses only its server.
package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/doorward/doorward/internal/base/secret"
)

// Config is a whole configuration, with defaults filled in and references resolved. It is not changed after Load.
type Config struct {
	SchemaURL    string             `yaml:"$schema" doc:"The address of the JSON Schema of this file, for editors. Doorward does not read it."`
	Listen       Listen             `yaml:"listen" doc:"The sockets at which callers reach Doorward."`
	Servers      map[string]*Server `yaml:"mcpServers" doc:"The MCP servers behind Doorward by name, in the dialect of the clients' own files. A name has 1 to 64 letters, digits, hyphens and single underscores, begins and ends with a letter or digit, and is unique without regard to case; a server with another name is refused, and the others run. The names agent and instructions are taken by the built-in servers."`
	Policy       string             `yaml:"policy" refs:"env" path:"" doc:"A Cedar policy file, on top of the default policy; see policy.md. The tests beside it, NAME.tests.yaml for NAME.cedar, are run by doorward check."`
	OAuth        OAuth              `yaml:"oauth" doc:"Accept the access tokens of one issuer on TCP listeners. Off while issuer is empty."`
	Agent        Agent              `yaml:"agent" doc:"Messaging between agents, the built-in server agent."`
	Instructions Instructions       `yaml:"instructions" doc:"Instruction delivery, the built-in server instructions."`
	Scan         Scanning           `yaml:"scan" doc:"The content rules of servers with doorward.scan."`
	Egress       Egress             `yaml:"egress" doc:"Connections to servers over the network."`
	Audit        Audit              `yaml:"audit" doc:"The audit log."`
	Approvals    Approvals          `yaml:"approvals" doc:"Calls that are held for the operator; see approvals.md."`
	Store        Store              `yaml:"store" doc:"The database of messages, instruction versions, delivery sessions and checkpoints of the audit log, and the key that seals sign-in tokens."`
	Limits       Limits             `yaml:"limits" doc:"Limits that hold for the whole daemon."`
	Telemetry    Telemetry          `yaml:"telemetry" doc:"Traces and metrics over OTLP/HTTP."`
	Log          Log                `yaml:"log" doc:"The daemon's own log, on standard error."`

	// File is the absolute path of the file that was read, empty for the built-in defaults.
	File string `yaml:"-"`
	// Dir is the absolute directory from which relative paths were taken.
	Dir string `yaml:"-"`
	// Secrets holds the paths of ${file:…} references, as written.
	Secrets []string `yaml:"-"`
	// Unread holds those of Secrets that could not be read.
	Unread []string `yaml:"-"`
	// PolicyText is the content of the policy file, after ReadPolicy.
	PolicyText []byte `yaml:"-"`
}

// Listen configures the sockets of the daemon.
type Listen struct {
	Unix string     `yaml:"unix" default:"auto" refs:"env" path:"auto|off" doc:"The Unix socket: auto is doorward.sock in the runtime directory, off is none, anything else is its path."`
	HTTP []Listener `yaml:"http" doc:"TCP listeners. Each is opened or refused by itself. When the key is missing there is one on 127.0.0.1:7866; [] is none."`
}

// Listener is one TCP listener. Package listen decides whether its address and the available credentials permit it.
type Listener struct {
	Addr       string   `yaml:"addr" required:"yes" doc:"Host and port. An address that is not loopback is refused unless DOORWARD_TOKEN, --token-file or oauth is set; with auth: required a token of doorward token new is enough."`
	Auth       string   `yaml:"auth" default:"auto" enum:"auto|required|none" doc:"auto enforces a token when DOORWARD_TOKEN, --token-file or oauth is set. required always enforces one, and tokens of doorward token new count. none enforces none, and is possible on loopback only."`
	TLS        *TLS     `yaml:"tls" doc:"Serve https with this certificate."`
	RequireTLS bool     `yaml:"require_tls" default:"false" doc:"Refuse to listen off loopback without TLS, instead of warning."`
	Hosts      []string `yaml:"hosts" doc:"Further Host names to accept, each a name or literal address, with :port when it differs from the listener's."`
	Origins    []string `yaml:"origins" doc:"Further Origins to accept, each as https://name or https://name:port."`
	Proxies    []string `yaml:"trusted_proxies" doc:"Networks or addresses of reverse proxies, such as 10.0.0.0/8. The client that their Forwarded or X-Forwarded-For header names is recorded, and failed tokens are counted for it; it grants nothing, and a client with a token that is elsewhere has no administration and no messages between agents. The headers of others are ignored. Their connections are limited by the total of the listener alone, those of any other address, and of any other user of this machine, to 256."`
}

// TLS names a certificate chain and its key, both PEM.
type TLS struct {
	Cert string `yaml:"cert" required:"yes" refs:"env" path:"" doc:"Certificate chain, PEM."`
	Key  string `yaml:"key" required:"yes" refs:"env" path:"" doc:"Private key, PEM."`
}

// Server is one MCP server. Kind is stdio, with Command, or http or sse, with URL, unless Refused says otherwise.
type Server struct {
	Kind     string                  `yaml:"type" cost:"server" enum:"stdio|http|sse|streamable-http|streamableHttp" doc:"The transport. A command alone means stdio, a url alone means http; streamable-http and streamableHttp are other spellings of http."`
	Command  string                  `yaml:"command" refs:"env" doc:"The program to start: a name found on PATH, or a path; a relative path with a slash in it is taken from the directory of this file. No shell reads it."`
	Args     []secret.Value          `yaml:"args" refs:"env" doc:"Its arguments, one string each. Every user of the machine can see them: secrets belong in env."`
	Env      map[string]secret.Value `yaml:"env" refs:"any" doc:"Environment variables for the program, beside PATH, HOME, USER, LANG and TMPDIR. It gets no others."`
	Cwd      string                  `yaml:"cwd" refs:"env" path:"" doc:"The directory in which the program starts. Empty is a directory of its own in the state directory: under contain its home, servers/NAME/home; with sandbox off servers/NAME/work. Under strict it is an empty home in memory."`
	URL      secret.Value            `yaml:"url" refs:"env" doc:"The server's address, http or https."`
	Headers  map[string]secret.Value `yaml:"headers" refs:"any" doc:"HTTP headers to send, such as the server's own credential."`
	Disabled bool                    `yaml:"disabled" default:"false" doc:"Leave this server out. Its references are not resolved."`
	Doorward Handling                `yaml:"doorward" doc:"How Doorward treats the server. Clients that read the same file ignore this key."`

	// Name is the server's key in mcpServers.
	Name string `yaml:"-"`
	// Line is its line in the file, from 1.
	Line int `yaml:"-"`
	// Path is the absolute path that Options.ResolveCommand returned for Command. Empty for http and sse.
	Path string `yaml:"-"`
	// Display is the command line, or the address without its query, as written in the file. References are
	// not resolved in it, so it may be shown and logged.
	Display string `yaml:"-"`
	// Written holds the arguments as written in the file, with their references.
	Written []secret.Value `yaml:"-"`
	// Refused is the reason why the server must not be used; empty: it may.
	Refused string `yaml:"-"`
}

// Handling holds Doorward's own settings for a server.
type Handling struct {
	Tools          Tools         `yaml:"tools" doc:"Which tools callers may use. Deny wins over allow."`
	Ask            Ask           `yaml:"ask" doc:"Which requests the server may make of its client. Deny wins over allow."`
	Instances      string        `yaml:"instances" default:"auto" enum:"auto|session|principal|shared" doc:"Which sessions share a child process or upstream session. auto is one for all sessions of a principal that the server cannot distinguish; see sessions.md."`
	Start          string        `yaml:"start" default:"auto" enum:"auto|lazy|warm" doc:"When a program is started. auto: with the daemon if it was used before, otherwise at the first need; lazy: at the first need; warm: with the daemon. One that was started with the daemon stays when no session uses it."`
	Sandbox        string        `yaml:"sandbox" default:"contain" enum:"off|contain|strict" doc:"How far the program is contained; see sandbox.md. The server is refused where the system cannot do it."`
	Read           []string      `yaml:"read" refs:"env" path:"aws|azure|browsers|docker|gcloud|git|github|huggingface|kubernetes|mcp-remote|npm|podman" doc:"Further files and directories that it may read, and names of profiles such as kubernetes; see sandbox.md."`
	Write          []string      `yaml:"write" refs:"env" path:"aws|azure|browsers|docker|gcloud|git|github|huggingface|kubernetes|mcp-remote|npm|podman" doc:"Further files and directories that it may read and write, and names of profiles."`
	NestedSandbox  bool          `yaml:"nested_sandbox" default:"false" doc:"Let the program make user namespaces of its own under contain, as browsers do for their sandbox."`
	Network        Network       `yaml:"network" default:"inherit" doc:"inherit is the host's network, none is no network. A list of ports is for strict: TCP to these alone, and UDP only with 53 among them, for the names."`
	Limits         ServerLimits  `yaml:"limits" doc:"Limits of one process of the server together with everything it starts."`
	MaxInstances   int           `yaml:"max_instances" default:"16" min:"1" max:"4096" doc:"Most child processes at once."`
	MaxStreams     int           `yaml:"max_streams" default:"1024" min:"1" max:"1000000" doc:"Most streams open at once beside the calls, for changes and messages; the next is refused at once with 503."`
	MaxConcurrency int           `yaml:"max_concurrency" default:"64" min:"1" max:"65536" doc:"Most calls under way at once; the next is refused at once with 503. Those of the daemon's own user on the socket and loopback count only when this key is written."`
	Timeout        time.Duration `yaml:"timeout" default:"120s" max:"24h" doc:"Longest time for one call. 0 is no limit."`
	Connect        time.Duration `yaml:"connect_timeout" default:"10s" max:"10m" doc:"Longest time to connect to the server, and as long again for the TLS handshake. 0 is the default."`
	FirstByte      time.Duration `yaml:"first_byte_timeout" default:"0s" max:"24h" doc:"Longest time from a request to the beginning of its answer. 0 is no limit: a server that answers with JSON begins when the tool is done."`
	Idle           time.Duration `yaml:"idle_timeout" default:"15m" max:"24h" doc:"Longest silence during a call or on a stream from the server; progress and keep-alives count as activity. 0 is no limit."`
	Protocol       string        `yaml:"protocol" default:"auto" enum:"auto|legacy|modern" doc:"The protocol era to use with it. auto detects it."`
	Trust          string        `yaml:"trust" default:"auto" enum:"auto|manual" doc:"auto approves what the server offers at first use; manual withholds it until doorward trust. A change is withheld either way."`
	OAuth          SignIn        `yaml:"oauth" doc:"How to sign in to a server over the network that asks for it. Without the section: doorward login, as the server's own metadata describe it."`
	Scan           string        `yaml:"scan" default:"off" enum:"off|monitor|redact|block" doc:"The action when a content rule matches in arguments or results: monitor records it, redact removes the match, block refuses the message. See scan.md."`
	ScanPatterns   string        `yaml:"scan_patterns" refs:"env" path:"" doc:"A pattern file for this server in place of scan.patterns."`
	// CountsOwn reports that the file sets max_concurrency, which then also holds for the daemon's own
	// user.
	CountsOwn    bool `yaml:"-"`
	AllowPrivate bool `yaml:"allow_private" default:"false" doc:"Let the url lead to loopback, private and link-local addresses, and allow plain http to them."`
}

// Scanning holds the settings of all servers with scan.
type Scanning struct {
	Patterns string `yaml:"patterns" refs:"env" path:"" doc:"A pattern file: a name and an RE2 expression on each line. Empty is the built-in list of common forms of credentials. A changed file is reloaded a second after its last change; while it is invalid, the previous rules remain in force."`
}

// Tools lists tool names; * stands for any run of characters.
type Tools struct {
	Allow []string `yaml:"allow" default:"*" doc:"Tool names; * stands for any run of characters. [] allows none."`
	Ask   []string `yaml:"ask" doc:"Tool names whose calls are held for the operator, and names that look like them; @destructive is every tool that declares destructiveHint, @writes every one that does not declare readOnlyHint. See approvals.md."`
	Deny  []string `yaml:"deny" doc:"Tool names refused even when allowed above, and names that look like them. A list under allow is safer, because it also covers tools that the server adds later."`
}

// Ask lists the requests that a server may make of its client.
type Ask struct {
	Allow []string `yaml:"allow" default:"elicitation" enum:"elicitation|sampling|roots" doc:"Requests that are passed on, labelled with the server's name."`
	Deny  []string `yaml:"deny" enum:"elicitation|sampling|roots" doc:"Requests that are refused even when allowed above."`
}

// OAuth configures the issuer whose access tokens are accepted. It is off if Issuer is empty.
type OAuth struct {
	Issuer       string              `yaml:"issuer" doc:"The issuer's URL, https, exactly as its tokens and metadata write it. Its keys are fetched from where its metadata says."`
	Audience     string              `yaml:"audience" doc:"This daemon's own URL as callers write it, without a path: https, or http for loopback. A token's aud must be it, or it with /mcp, or with /mcp/NAME for that server alone. Required with an issuer."`
	Scopes       map[string][]string `yaml:"scopes" doc:"The rights that each scope of the issuer grants here, written as for doorward token new --scope: server:NAME, tool:SERVER/NAME, agent, instructions, admin. A scope that is not listed grants nothing."`
	Algorithms   []string            `yaml:"algorithms" default:"RS256,PS256,ES256,EdDSA" enum:"RS256|RS384|RS512|PS256|PS384|PS512|ES256|ES384|ES512|EdDSA" doc:"The accepted signature algorithms. Unsigned and symmetric ones are never accepted."`
	AllowPrivate bool                `yaml:"allow_private" default:"false" doc:"Let the issuer be at a loopback, private or shared address. https is required all the same."`
}

// Agent configures messaging.
type Agent struct {
	Enabled         bool   `yaml:"enabled" default:"true" doc:"Offer the server agent."`
	Overflow        string `yaml:"overflow" default:"reject" enum:"reject|evict-oldest" doc:"The action of a full mailbox: reject refuses the new message; evict-oldest drops the oldest one, counts it and reports it to both sides."`
	MessageBytes    int    `yaml:"message_bytes" default:"65536" min:"1" max:"1048576" doc:"Largest message in bytes."`
	MailboxMessages int    `yaml:"mailbox_messages" default:"1000" min:"1" max:"1000000" doc:"Most open messages in one mailbox."`
	MailboxBytes    int64  `yaml:"mailbox_bytes" default:"8388608" min:"1024" max:"1073741824" doc:"Most bytes of open messages in one mailbox."`
	SenderMessages  int    `yaml:"sender_messages" default:"100" min:"1" max:"1000000" doc:"Most open messages from one sender in one mailbox."`
	SendsPerMinute  int    `yaml:"sends_per_minute" default:"60" min:"1" max:"100000" doc:"Most sends of one peer in a minute, of which it may have 20 at once or a third, whichever is more."`
	Peers           int    `yaml:"peers" default:"256" min:"1" max:"100000" doc:"Most registered peers in one namespace."`

	TTL     time.Duration `yaml:"ttl" default:"24h" min:"60s" max:"168h" doc:"How long a message waits for its recipient where the sender does not say."`
	Hold    time.Duration `yaml:"hold" default:"1h" min:"1s" max:"168h" doc:"How long a held message waits for doorward agent hold."`
	Lease   time.Duration `yaml:"lease" default:"120s" min:"1s" max:"1h" doc:"How long a message that was given to its recipient waits for the acknowledgement before it is given again."`
	Retries int           `yaml:"attempts" default:"5" min:"1" max:"100" doc:"How often a message is given to its recipient without an acknowledgement until it counts as dead."`
	WaitCap time.Duration `yaml:"wait_cap" default:"55s" min:"1s" max:"295s" doc:"Longest wait of one call for mail. A longer one is lowered, and the answer says so."`
	Session time.Duration `yaml:"session" default:"90s" min:"5s" max:"1h" doc:"How long a session counts as live after its last request, or the last keep-alive that it has taken. Keep-alives come every 15s: with less than 20s an open stream alone is not enough."`

	Keep Keep `yaml:"keep" doc:"How long finished messages are kept."`

	SiblingJoin string `yaml:"sibling_join" default:"off" enum:"off|same-parent" doc:"same-parent: a second doorward connect with the same parent process shares the peer of the first, for clients that open two bridges for one agent."`

	Launchers map[string]*Launcher `yaml:"launchers" doc:"Programs that agents may start as other agents, by name; see spawn.md. Agents can start no other program."`
}

// Keep configures how long finished messages are kept.
type Keep struct {
	Confirmed time.Duration `yaml:"confirmed" default:"168h" min:"1h" max:"8760h" doc:"How long the text of a message is kept after its recipient has confirmed it, so that sender and recipient can get it again with the tool read. The text of a message that ends without a confirmation is kept for a day."`
}

// Instructions configures instruction delivery.
type Instructions struct {
	Dir          string       `yaml:"dir" default:"instructions" refs:"env" path:"" doc:"Directory of instruction files, Markdown with front matter; see instructions.md. Without this key it is used if it is there when the daemon starts."`
	URL          string       `yaml:"url" refs:"env" doc:"A remote instruction store in place of dir: the https address of another Doorward. Its documents are kept in memory only."`
	Token        secret.Value `yaml:"token" refs:"any" doc:"The bearer token for url, made with doorward token new at that Doorward."`
	OAuth        SignIn       `yaml:"oauth" doc:"Access tokens for url in place of token. It needs grant: client_credentials."`
	AllowPrivate bool         `yaml:"allow_private" default:"false" doc:"Let url lead to loopback, private and shared addresses. https is required all the same."`
	FailClosed   bool         `yaml:"fail_closed" default:"false" doc:"Refuse the tools of all servers to callers that cannot be given full guidance, with the reason, instead of giving generic instructions and a warning."`
	Review       bool         `yaml:"review" default:"false" doc:"A new or changed file waits for doorward instructions promote, instead of being production at once."`
	Canary       string       `yaml:"canary" default:"alert" enum:"alert|redact|block" doc:"The action when the arguments of a tool, a message or the prompt of a started agent contain the watermark of a delivered text: alert records it, redact removes it, block refuses the call."`
	Environment  string       `yaml:"environment" refs:"env" doc:"The environment of this daemon, such as prod. audience.environments of a document is matched against it."`

	// Given reports that the file names another directory than the default, so that it must exist.
	Given bool `yaml:"-"`
}

// Audit configures the audit log.
type Audit struct {
	Dir  string `yaml:"dir" refs:"env" path:"" doc:"The directory of the log. Empty is audit in the state directory."`
	Sync string `yaml:"sync" default:"interval" enum:"interval|always" doc:"When records are forced to the disk: every 100 ms and at checkpoints, or before each act."`

	Retain Retain `yaml:"retain" doc:"How much of the log is kept. Whole segments are removed, the oldest first; the rest stays verifiable."`
}

// Retain configures how much of the audit log is kept.
type Retain struct {
	Days  int   `yaml:"days" default:"90" min:"0" max:"36500" doc:"Days after which records are removed. 0 is no bound."`
	Bytes int64 `yaml:"bytes" default:"0" min:"0" max:"1125899906842624" doc:"Bytes above which the oldest segments are removed, checkpoints counted too. The log may grow beyond this by the open segment: a quarter of this value, at least 64 KiB and at most 16 MiB. 0 is no bound."`
}

// Store configures the database.
type Store struct {
	SignInKey     secret.Value `yaml:"sign_in_key" refs:"any" doc:"The key that seals the tokens of doorward login, 32 characters or more, such as ${keyring:doorward/sign-ins}. Empty is a key that Doorward makes in the state directory."`
	AnyFilesystem bool         `yaml:"any_filesystem" default:"false" doc:"Keep the embedded database on a network file system or on FUSE, which is refused otherwise. Set it only if locks and fsync work there."`
	Node          string       `yaml:"node" doc:"The name of this daemon among those that share a database. Empty is the host's name."`
	Postgres      secret.Value `yaml:"postgres" refs:"any" doc:"A PostgreSQL connection string for many nodes; one to another host names sslmode=verify-full, or require. Empty is the embedded SQLite in the state directory."`
}

// Limits holds the limits of the whole daemon.
type Limits struct {
	BodyBytes            int64         `yaml:"body_bytes" default:"4194304" min:"1024" max:"1073741824" doc:"Largest request body in bytes."`
	AnswerBytes          int           `yaml:"answer_bytes" default:"16777216" min:"65536" max:"1073741824" doc:"Largest message of a server in bytes. A larger one is dropped and fails the call that it answers; other calls go on. A client can have a lower limit of its own: the TypeScript SDK ends a connection over standard streams, such as that of doorward connect, at a message above 10 MiB."`
	Sessions             int           `yaml:"sessions" default:"1000" min:"1" max:"1000000" doc:"Most sessions at once."`
	SessionsPerPrincipal int           `yaml:"sessions_per_principal" default:"64" min:"1" max:"1000000" doc:"Most sessions of one principal, and most open subscriptions/listen of one. Applied to the daemon's own user, on the socket and on loopback, only when it is set here."`
	Children             int           `yaml:"children" default:"256" min:"1" max:"65536" doc:"Most child processes of all servers together."`
	CallsPerPrincipal    int           `yaml:"calls_per_principal" default:"256" min:"1" max:"1000000" doc:"Most calls of one principal under way at once; the next is refused at once with 503. Calls that wait for mail do not count, and streams of subscriptions/listen are counted by sessions_per_principal instead. Applied to the daemon's own user only when it is set here."`
	CallsPerSecond       int           `yaml:"calls_per_second" default:"200" min:"1" max:"1000000" doc:"Most calls a second of one principal; above it 429. Applied to the daemon's own user only when it is set here."`
	Stream               time.Duration `yaml:"stream" default:"0s" max:"24h" doc:"Longest time that the event stream of one call is kept open; a client of 2025-11-25 is then asked to connect again for the rest. For proxies in front that cut long responses. 0 is no limit."`

	// Written is the set of keys of this section in the file. The limits for each principal apply to the
	// daemon's own user only if they are written.
	Written map[string]bool `yaml:"-"`
}

// Log configures the daemon's own log.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug|info|warn|error" doc:"The least important level that is written."`
	Format string `yaml:"format" default:"text" enum:"text|json" doc:"text is key=value, json one object a line."`
}

// Approvals configures how calls are held for the operator.
type Approvals struct {
	Wait     string          `yaml:"wait" default:"auto" doc:"How long a held call waits for its answer before the client is told that it is pending, such as 50s, at most 1h. auto is as long as the client is known to wait."`
	Expire   time.Duration   `yaml:"expire" default:"1h" min:"1s" max:"24h" doc:"How long a call can be approved. A call that is not approved by then is denied."`
	Presence string          `yaml:"presence" default:"terminal" enum:"terminal|passkey" doc:"How a person proves to be present when approving: terminal is a controlling terminal that is not an agent's, or the console; passkey is a passkey in the console, which needs a loopback listener."`
	Notify   ApprovalsNotify `yaml:"notify" doc:"How the operator is told of a held call or message."`
}

// ApprovalsNotify configures the notices about held calls and messages.
type ApprovalsNotify struct {
	Command []string `yaml:"command" refs:"env" doc:"A program and its arguments, started for each held call or message with DOORWARD_PENDING, DOORWARD_CLIENT, DOORWARD_SERVER and DOORWARD_TOOL in its environment. It never gets arguments or texts."`
	// Webhook is a secret, because its path often contains one.
	Webhook   secret.Value `yaml:"webhook" refs:"any" doc:"An address to which each held call or message is posted, signed as in Standard Webhooks; see approvals.md."`
	Secret    secret.Value `yaml:"webhook_secret" refs:"any" doc:"The key that signs the notice: whsec_ and base64, or any text, of 24 bytes at least. Empty is webhook.secret in the state directory, which Doorward makes."`
	Arguments bool         `yaml:"webhook_arguments" default:"false" doc:"Send the arguments of the call too. They then leave the machine."`
	Private   bool         `yaml:"allow_private" default:"false" doc:"Let webhook lead to loopback, private and shared addresses, and allow plain http to them."`
	Desktop   string       `yaml:"desktop" default:"auto" enum:"auto|off" doc:"auto shows a notice on the desktop where the daemon has a session bus (D-Bus)."`
}

// SignIn configures how Doorward gets access tokens for a server that requires OAuth.
type SignIn struct {
	Grant               string       `yaml:"grant" default:"authorization_code" enum:"authorization_code|client_credentials|off" doc:"authorization_code waits for doorward login, client_credentials signs in by itself with client_secret, off sends no token. See upstream-oauth.md."`
	ClientID            string       `yaml:"client_id" refs:"env" doc:"The client id under which Doorward was registered by hand. Without it client_metadata_url is used where the authorization server accepts it, else dynamic registration."`
	ClientSecret        secret.Value `yaml:"client_secret" refs:"any" doc:"Its secret, if it has one. It needs authorization_server, because it is sent nowhere else."`
	Scopes              []string     `yaml:"scopes" doc:"The scopes to ask for. Without the key: the scopes that the server names."`
	ClientMetadataURL   string       `yaml:"client_metadata_url" refs:"env" doc:"The address at which you publish the client metadata document of this Doorward: https, with a path."`
	AuthorizationServer string       `yaml:"authorization_server" refs:"env" doc:"The issuer URL, exactly as its metadata write it. Without the key: the first one in the server's metadata. With allow_private it may be at a private address too."`
	CallbackPort        int          `yaml:"callback_port" default:"0" min:"0" max:"65535" doc:"Port on 127.0.0.1 to which the browser returns. 0 is any that is free."`
}

// Egress configures connections to servers over the network.
type Egress struct {
	Proxy string `yaml:"proxy" refs:"env" doc:"An HTTP proxy, http://host:port, for servers without allow_private. The proxy then looks up names and dials addresses, and its rules decide which are allowed. HTTP_PROXY and similar variables are never used."`
}

// Telemetry configures where spans and metrics are sent. It is off if OTLP is empty.
type Telemetry struct {
	OTLP    string                  `yaml:"otlp" refs:"env" doc:"The base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; /v1/traces and /v1/metrics are appended. It may be at a loopback, private or shared address. Empty sends nothing. See telemetry.md."`
	Headers map[string]secret.Value `yaml:"headers" refs:"any" doc:"HTTP headers for the collector, such as its credential."`
}

// Launcher is a program that agents may start as another agent.
type Launcher struct {
	Command string                  `yaml:"command" required:"yes" refs:"env" doc:"The program to start: a name found on PATH, or a path. No shell reads it. Its content is pinned at the first start, and a changed one waits for doorward trust launcher:NAME."`
	Args    []secret.Value          `yaml:"args" refs:"env" doc:"Its arguments, one string each. {model}, {cwd} and {name} stand for values of one start; each must be a whole argument. The prompt is never an argument: it goes to standard input."`
	Env     map[string]secret.Value `yaml:"env" refs:"any" doc:"Environment variables for the program, beside PATH, HOME, USER, LANG and TMPDIR and what doorward connect needs in it."`
	Cwd     string                  `yaml:"cwd" refs:"env" path:"" doc:"The directory in which it starts when the request names none. Empty is the first of roots."`
	Roots   []string                `yaml:"roots" refs:"env" path:"" doc:"Directories in which it may be started. Empty is cwd alone."`
	Rights  []string                `yaml:"rights" doc:"The rights that an agent of this launcher can have: server:NAME, tool:SERVER/NAME, instructions. Messaging needs no entry; administration cannot be granted. An agent never has a right that its parent lacks."`
	Models  []string                `yaml:"models" doc:"The permitted values of {model}; the first is the default."`
	Budget  Budget                  `yaml:"budget" doc:"The most that one start may ask for, and what it gets when it does not ask."`
	Output  Size                    `yaml:"output" default:"8MiB" max:"1GiB" doc:"How much of its standard output is kept, for seven days, when that is more than 64 KiB; the last 64 KiB are the result."`
	Trust   string                  `yaml:"trust" default:"auto" enum:"auto|manual" doc:"auto approves the program and its arguments at the first start; manual withholds them until doorward trust launcher:NAME."`

	Sandbox string       `yaml:"sandbox" default:"contain" enum:"off|contain|strict" doc:"How far it is contained; see sandbox.md. It is not started where the system cannot do it."`
	Read    []string     `yaml:"read" refs:"env" path:"aws|azure|browsers|docker|gcloud|git|github|huggingface|kubernetes|mcp-remote|npm|podman" doc:"As for a server."`
	Write   []string     `yaml:"write" refs:"env" path:"aws|azure|browsers|docker|gcloud|git|github|huggingface|kubernetes|mcp-remote|npm|podman" doc:"As for a server."`
	Network Network      `yaml:"network" default:"inherit" doc:"As for a server. Doorward's socket can be reached with none too."`
	Limits  ServerLimits `yaml:"limits" doc:"Limits of one agent together with everything it starts."`

	// Name is the launcher's key.
	Name string `yaml:"-"`
	// Path is the absolute path that Options.ResolveCommand returned for Command.
	Path string `yaml:"-"`
	// Refused is the reason why the launcher must not be used; empty: it may.
	Refused string `yaml:"-"`
}

// Budget bounds one started agent.
type Budget struct {
	Seconds  int `yaml:"max_seconds" default:"1800" min:"1" max:"7200" doc:"Seconds until it is ended."`
	Children int `yaml:"max_children" default:"0" min:"0" max:"4" doc:"Agents that it may start in turn."`
	Messages int `yaml:"max_messages" default:"100" min:"0" max:"100000" doc:"Messages that it may send."`
}

// Size is a number of bytes.
type Size int64

// Network is inherit, none, or a list of ports as "443,8443".
type Network string

// Ports returns the ports of a list; nil for inherit and none.
func (n Network) Ports() []uint16 {
	var all []uint16
	for _, word := range strings.Split(string(n), ",") {
		if port, err := strconv.ParseUint(word, 10, 16); err == nil {
			all = append(all, uint16(port))
		}
	}
	return all
}

// ServerLimits bounds what a contained server and its descendants may use.
type ServerLimits struct {
	Memory    Size `yaml:"memory" default:"2GiB" min:"1MiB" max:"1024GiB" doc:"Most memory of all its processes together, its files in /tmp included. 0 is no limit, and other values below 1MiB are refused."`
	Processes int  `yaml:"processes" default:"512" min:"0" max:"1000000" doc:"Most processes and threads. 0 is no limit."`
	Files     int  `yaml:"files" default:"4096" min:"0" max:"1048576" doc:"Most open descriptors of each process. 0 leaves the daemon's own limit."`
}
