package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	_ "github.com/ncruces/go-sqlite3/driver" // the driver of the daemon, without the daemon
)

// sqlite returns the control: a bare database with the given synchronous setting.
func sqlite(synchronous string) func(string) subject {
	return func(string) subject { return &bare{synchronous: synchronous} }
}

type bare struct {
	synchronous string
	cmd         *exec.Cmd
	ids         chan []string // ids of one round, sent after the end of the output
}

func (b *bare) program(verb, dir string) *exec.Cmd {
	self, _ := os.Executable()
	cmd := exec.Command(self, "sqlite", verb, filepath.Join(dir, "control.db"), b.synchronous)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func (b *bare) begin(dir string) error {
	b.cmd = b.program("write", dir)
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.cmd.Start(); err != nil {
		return err
	}
	in := bufio.NewReader(out)
	first, err := in.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the writer stores nothing: %w", err)
	}
	b.ids = make(chan []string, 1)
	go func() { b.ids <- append(lines(in), first[:len(first)-1]) }()
	return nil
}

func (b *bare) kill() ([]string, error) {
	if b.ids == nil {
		return nil, nil
	}
	_ = b.cmd.Process.Kill()
	ids := <-b.ids
	if err := b.cmd.Wait(); b.cmd.ProcessState.Exited() {
		return nil, fmt.Errorf("the writer ended before it was killed: %w", err)
	}
	return ids, nil
}

func (b *bare) stored(dir string, _ []string) ([]string, error) {
	out, err := b.program("read", dir).Output()
	return lines(bufio.NewReader(bytes.NewReader(out))), err
}

// lines returns all complete lines. An incomplete last line does not count as an answer.
func lines(in *bufio.Reader) []string {
	var all []string
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return all
		}
		all = append(all, line[:len(line)-1])
	}
}

// sqliteProgram is `powerloss sqlite write|read FILE FULL|NORMAL`. write stores rows and prints
// the id of each after its COMMIT has returned; read prints all ids.
func sqliteProgram(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: powerloss sqlite write|read FILE FULL|NORMAL")
	}
	name := url.URL{Scheme: "file", Path: args[1], RawQuery: "_txlock=immediate&_pragma=busy_timeout(10000)" +
		"&_pragma=journal_mode(WAL)&_pragma=temp_store(MEMORY)&_pragma=synchronous(" + args[2] + ")"}
	db, err := sql.Open("sqlite3", name.String())
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS kept (id TEXT, body BLOB) STRICT"); err != nil {
		return err
	}
	if args[0] == "read" {
		return printRows(db)
	}
	for {
		id := rand.Text() // unique; the row number of a lost row would be used again
		if _, err := db.Exec("INSERT INTO kept (id, body) VALUES (?1, randomblob(1024))", id); err != nil {
			return err
		}
		fmt.Println(id)
	}
}

func printRows(db *sql.DB) error {
	var ok string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&ok); err != nil || ok != "ok" {
		return fmt.Errorf("integrity: %s: %w", ok, err)
	}
	rows, err := db.Query("SELECT id FROM kept")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		fmt.Println(id)
	}
	return rows.Err()
}
