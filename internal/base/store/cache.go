package store

// cached is the most compiled statements that a connection keeps. Doorward has
// fewer; the limit is for a caller that builds statements dynamically.
const cached = 512

// cache holds the compiled statements of one connection.
type cache[S any] struct{ m map[string]S }

func (c *cache[S]) get(key string) (S, bool) {
	s, ok := c.m[key]
	return s, ok
}

// put keeps s, and drops arbitrary other statements when there are too many.
func (c *cache[S]) put(key string, s S, drop func(S)) {
	if c.m == nil {
		c.m = make(map[string]S)
	}
	for k, old := range c.m {
		if len(c.m) < cached {
			break
		}
		drop(old)
		delete(c.m, k)
	}
	c.m[key] = s
}

func (c *cache[S]) clear(drop func(S)) {
	for _, s := range c.m {
		drop(s)
	}
	c.m = nil
}
