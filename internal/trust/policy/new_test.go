package policy

// New is Compile without a policy file, for tests. The built-in rules have no problems.
func New(uid uint32, servers map[string]ServerRules) *Set {
	s, problems := Compile(Options{UID: uid, Servers: servers})
	if s == nil {
		panic("policy: the built-in rules: " + problems[0].Text)
	}
	return s
}
