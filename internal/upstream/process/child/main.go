// Child is the program of a supervisor alone. Package process runs the supervisor when it
// is imported; a start with other arguments does nothing.
package main

import _ "github.com/doorward/doorward/internal/upstream/process"

func main() {}
