package main

import (
	"os"
	"time"

	"github.com/doorward/doorward/internal/downstream/peer"
)

// stamp identifies a state of a file; without info there is none. Files of some systems all
// have the same time, and a change of the owner or the mode can make a file usable.
type stamp struct{ info os.FileInfo }

func (s stamp) equal(t stamp) bool {
	if s.info == nil || t.info == nil {
		return s.info == nil && t.info == nil
	}
	return os.SameFile(s.info, t.info) && s.info.Size() == t.info.Size() && s.info.ModTime().Equal(t.info.ModTime()) && s.info.Mode() == t.info.Mode() && owned(s.info) == owned(t.info)
}

// owned returns user and group of a file.
func owned(info os.FileInfo) [2]uint32 {
	uid, gid, _ := peer.Owner(info)
	return [2]uint32{uid, gid}
}

// stats makes stamps. A file whose file system does not answer has none until it answers; it is
// asked once, because each question takes a thread. The zero stats is ready; it is not for
// concurrent use.
type stats struct{ asked map[string]chan os.FileInfo }

// statTime is how long the answer of a file system is waited for.
const statTime = time.Second

func (s *stats) of(paths []string) []stamp {
	var out []stamp
	for _, path := range paths {
		out = append(out, s.one(path))
	}
	return out
}

func (s *stats) one(path string) stamp {
	answer := s.asked[path]
	if answer == nil {
		answer = make(chan os.FileInfo, 1)
		go func() {
			info, _ := os.Stat(path) // nil after an error
			answer <- info
		}()
	}
	delete(s.asked, path)
	select {
	case info := <-answer:
		return stamp{info}
	case <-time.After(statTime):
	}
	if s.asked == nil {
		s.asked = make(map[string]chan os.FileInfo)
	}
	s.asked[path] = answer
	return stamp{}
}
