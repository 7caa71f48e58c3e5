//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The set of documents: about 40 KiB in 24 documents of every class. All are structural, because
// the sessions of the first fetches may read nothing else (see instructions.go).
const (
	instructionDocs = 8
	voiceDocs       = 4
	templateDocs    = 12

	allDocs      = instructionDocs + voiceDocs + templateDocs
	documentSize = 1700 // bytes, about
)

// rendered is the template that is rendered. It has variables of three types and includes another
// template.
const rendered = "template-00"

// guidanceDoc is one file of the set.
type guidanceDoc struct{ name, text string }

// guidance makes the set. Each document begins with a unique sentence (see planted).
func guidance() []guidanceDoc {
	var all []guidanceDoc
	add := func(n int, class, prefix string) {
		for i := range n {
			name := fmt.Sprintf("%s-%02d", prefix, i)
			if class == "voice" && i == 0 {
				name = "voice" // the document that /auth/voice serves
			}
			all = append(all, guidanceDoc{name, documentOf(name, class, i)})
		}
	}
	add(instructionDocs, "instructions", "guide")
	add(voiceDocs, "voice", "voice")
	add(templateDocs, "template", "template")
	return all
}

func documentOf(name, class string, number int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\nname: %s\nclass: %s\ntier: structural\ndescription: how the benchmark has it\n", name, class)
	if number%2 == 1 { // half of the documents need a check of their audience
		b.WriteString("audience: {principals: [\"uid:*\"]}\n")
	}
	if name == rendered {
		b.WriteString("variables: {title: {type: string, maxLength: 80}, count: {type: integer}, tone: {type: string, default: plain}}\n")
	}
	fmt.Fprintf(&b, "---\n%s\n\n", planted(name))
	if name == rendered {
		b.WriteString("On {{title}}, {{count}} in number, in a tone that is {{tone}}.\n\n{{> template-02}}\n\n")
	}
	b.WriteString(prose(name, documentSize-b.Len()))
	return b.String()
}

// planted returns the first sentence of a document. A text is complete if it contains the sentence.
func planted(name string) string {
	return "The document " + name + " wants the lanterns counted before dusk."
}

var words = strings.Fields(`a review has two passes first what the change does then how it reads say what you
	know and how you know it numbers come with units and dates with a zone names of people stay out keep lists
	short ask before you delete`)

// prose returns about size bytes of text that resembles prose: words of several lengths, in lines.
// Different seeds give different texts.
func prose(seed string, size int) string {
	var b strings.Builder
	next := uint32(2166136261)
	for _, c := range []byte(seed) {
		next = (next ^ uint32(c)) * 16777619
	}
	for n := 0; b.Len() < size; n++ {
		next = next*1664525 + 1013904223
		b.WriteString(words[next>>16%uint32(len(words))])
		if n%12 == 11 {
			b.WriteString(".\n")
		} else {
			b.WriteByte(' ')
		}
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// writeGuidance writes the set to a new directory to which only the user has access.
func writeGuidance(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("preparing the instructions: %w", err)
	}
	for _, d := range guidance() {
		if err := os.WriteFile(filepath.Join(dir, d.name+".md"), []byte(d.text), 0o600); err != nil {
			return fmt.Errorf("preparing the instructions: %w", err)
		}
	}
	return nil
}

// refOf returns the mark in a delivered text, `ref: dwi-` and 16 characters of base32. It returns
// "" when there is no well-formed mark.
func refOf(body []byte) string {
	const begins, length = "ref: ", len("dwi-") + 16
	at := bytes.Index(body, []byte(begins+"dwi-"))
	if at < 0 || len(body) < at+len(begins)+length {
		return ""
	}
	ref := string(body[at+len(begins):][:length])
	if strings.Trim(ref[len("dwi-"):], "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return ""
	}
	return ref
}
