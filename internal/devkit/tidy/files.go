package tidy

import (
	"fmt"
	"regexp"
)

// maxLines is how long a Go file may be before it should be two.
const maxLines = 500

// LongFiles finds Go files, written by hand, that are too long.
func (r *Repo) LongFiles() ([]Finding, error) {
	return r.each(isGo, func(name string, data []byte) []Finding {
		if n := len(lines(data)); n > maxLines && !generated.Match(data) {
			return []Finding{{File: name, Text: fmt.Sprintf("%d lines; split it (at most %d)", n, maxLines)}}
		}
		return nil
	})
}

var (
	// A path below the directories of one machine or user, at the start of a word.
	machinePath = regexp.MustCompile(`(^|[^\w.~/*-])/(work|root|tmp|home|Users)/[\w.]`)
	// Where packages are fetched from is set on a machine, not in a repository. The
	// brackets keep the expression from finding itself.
	registry = regexp.MustCompile(`(?i)\b(GOPROXY|GONOSUMDB|GONOSUMCHECK|GOINSECURE)=` +
		`|\bindex[-]url\b|\b(artifact[o]ry|jfr[o]g)\b` +
		`|\b(proxy|sum)\.golang\.org\b|\bregistry\.npmjs\.org\b|\bpypi\.org\b`)
	// An address by number, other than this host's own.
	numericHost = regexp.MustCompile(`https?://(\d{1,3}\.){3}\d{1,3}`)
	loopback    = regexp.MustCompile(`https?://(127\.|0\.0\.0\.0)`)
)

// MachineTraces finds paths and hosts that exist on one machine only.
func (r *Repo) MachineTraces() ([]Finding, error) {
	return r.each(isProduct, func(name string, data []byte) []Finding {
		var found []Finding
		for i, line := range lines(data) {
			if hit := machinePath.FindString(line); hit != "" {
				found = append(found, Finding{name, i + 1, "a path of one machine"})
			}
			if hit := registry.FindString(line); hit != "" {
				found = append(found, Finding{name, i + 1, "a package registry or its settings: " + hit})
			}
			for _, host := range numericHost.FindAllString(line, -1) {
				if !loopback.MatchString(host) {
					found = append(found, Finding{name, i + 1, "an address by number: " + host})
				}
			}
		}
		return found
	})
}
