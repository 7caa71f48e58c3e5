package child

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// packages are the folders that named scripts below /tmp need with themselves, so that one that was unpacked there works as
// it does elsewhere: the modules that it lies in or beside, found as its interpreter finds them.
func packages(named []string) (folders []string) {
	for _, path := range bothWays(named) {
		if !strings.HasPrefix(path, "/tmp/") {
			continue
		}
		if before, _, ok := strings.Cut(path, "/node_modules/"); ok {
			folders = append(folders, before+"/node_modules")
			continue
		}
		for dir := filepath.Dir(path); dir != "/tmp"; dir = filepath.Dir(dir) {
			if isPackage(dir) {
				folders = append(folders, dir)
				break
			}
		}
	}
	return folders
}

func isPackage(dir string) bool {
	return slices.ContainsFunc([]string{"package.json", "pyproject.toml"}, func(name string) bool {
		_, err := os.Lstat(dir + "/" + name)
		return err == nil
	})
}
