package peer

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A daemon proves to its clients that it holds the key of its state directory. A client
// sends a nonce, and the daemon signs the nonce together with the pid of the process that
// bound its socket: its own, or that of the service manager that passed the socket. The
// client compares that pid with the pid that the kernel reports for the listener. A
// process in between therefore cannot pass the daemon's answer on as its own.

// ProofPath is the path of the proof on the daemon's Unix socket, and ProofNonce the
// header with the nonce.
const (
	ProofPath  = "/proof"
	ProofNonce = "Doorward-Nonce"
)

// MaxProof is an upper bound for the bytes of a proof.
const MaxProof = 256

// nonceLen is the length of a nonce in base64url: 32 random bytes.
const nonceLen = 43

// ErrProof is wrapped by the errors of CheckProof.
var ErrProof = errors.New("the daemon did not prove that it holds its key")

func proofText(nonce string, pid int) []byte {
	return []byte("doorward daemon proof 1\n" + nonce + "\n" + strconv.Itoa(pid) + "\n")
}

// Prove returns the answer to a nonce for the process pid; false: it is not a nonce.
func Prove(key ed25519.PrivateKey, nonce string, pid int) (string, bool) {
	if b, err := base64.RawURLEncoding.Strict().DecodeString(nonce); err != nil || len(nonce) != nonceLen || len(b) != 32 {
		return "", false
	}
	return strconv.Itoa(pid) + " " + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, proofText(nonce, pid))), true
}

// CheckProof checks the answer to a nonce. listener is the pid of the process
// that listens on the socket; 0: it is in a pid namespace that is not visible
// here, and only the key is checked.
func CheckProof(key ed25519.PublicKey, nonce, proof string, listener int32) error {
	number, text, _ := strings.Cut(proof, " ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("%w: its answer is malformed", ErrProof)
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, proofText(nonce, pid), signature) {
		return fmt.Errorf("%w: its signature is not valid", ErrProof)
	}
	if listener != 0 && int(listener) != pid {
		return fmt.Errorf("%w: process %d listens, and process %d answered", ErrProof, listener, pid)
	}
	return nil
}
