package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
)

// runStore is `fakemcp store ADDR FILE`: a false store of instructions. It has cert.pem and
// key.pem, and answers every request with the bytes of FILE. While FILE does not exist, it
// takes connections and requests and never answers.
func runStore(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: fakemcp store ADDR FILE")
	}
	cert, err := tls.LoadX509KeyPair("cert.pem", "key.pem")
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp", args[0], &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		return err
	}
	fmt.Println("store", l.Addr(), os.Getpid())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go answerStore(c, args[1])
	}
}

func answerStore(c net.Conn, file string) {
	for in := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			c.Close()
			return
		}
		fmt.Println("asked", r.Method, r.URL.Path)
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // for as long as the other side waits
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
	}
}
