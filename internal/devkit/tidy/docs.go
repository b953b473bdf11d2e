package tidy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	pathLike   = regexp.MustCompile(`^(\./)?[\w.*{},-]+(/[\w.*{},-]*)+$|^[\w-]+\.md$`)
	symbol     = regexp.MustCompile(`\.[A-Z]\w*$`)
	target     = regexp.MustCompile(`(?m)^([a-z][a-z/]*(?: [a-z][a-z/]*)*):(?:[^=]|$)`)
)

// topLevel are the directories whose names make a backticked word a path of this
// repository; `gold/orders` is an asset and `application/json` a media type.
var topLevel = []string{
	".ci", "client", "cmd", "deploy", "docs", "examples", "gen", "internal", "proto", "python", "scripts", "sdk", "tools",
}

// MissingPaths finds files and directories that the documentation names and that do not exist.
// The changelog is history: what it names may be gone.
func (r *Repo) MissingPaths() ([]Finding, error) {
	keep := func(name string) bool { return isMarkdown(name) && name != "CHANGELOG.md" }
	return r.each(keep, func(name string, data []byte) []Finding {
		var found []Finding
		eachLine(data, func(n int, line string, fenced bool) {
			if fenced {
				return
			}
			for _, code := range inlineCode.FindAllStringSubmatch(line, -1) {
				if !r.pathExists(name, code[1]) {
					found = append(found, Finding{name, n, "no such path: " + code[1]})
				}
			}
			for _, to := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, "``"), -1) {
				if !r.linkExists(name, to[1]) {
					found = append(found, Finding{name, n, "broken link: " + to[1]})
				}
			}
		})
		return found
	})
}

// pathExists reports whether a backticked word is no path, or an existing one.
func (r *Repo) pathExists(doc, word string) bool {
	if !pathLike.MatchString(word) {
		return true
	}
	if !strings.Contains(word, "/") {
		return r.exists(word) || r.exists(path.Join(path.Dir(doc), word))
	}
	word = strings.TrimSuffix(strings.TrimPrefix(word, "./"), "/...")
	if first, _, _ := strings.Cut(word, "/"); !slices.Contains(topLevel, first) {
		return true
	}
	for _, name := range expandBraces(word) {
		if !r.exists(name) && !r.exists(symbol.ReplaceAllString(name, "")) {
			return false
		}
	}
	return true
}

func (r *Repo) linkExists(doc, to string) bool {
	to, _, _ = strings.Cut(to, "#")
	if to == "" || strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return true
	}
	return r.exists(path.Join(path.Dir(doc), to))
}

// expandBraces turns a/{b,c}/d into a/b/d and a/c/d.
func expandBraces(word string) []string {
	before, rest, ok := strings.Cut(word, "{")
	if !ok {
		return []string{word}
	}
	inside, after, ok := strings.Cut(rest, "}")
	if !ok {
		return []string{word}
	}
	var words []string
	for _, choice := range strings.Split(inside, ",") {
		words = append(words, expandBraces(before+choice+after)...)
	}
	return words
}

// MissingTargets finds make targets that the documentation names and the Makefile lacks.
func (r *Repo) MissingTargets() ([]Finding, error) {
	makefile, err := r.read("Makefile")
	if err != nil {
		return nil, err
	}
	targets := map[string]bool{}
	for _, match := range target.FindAllSubmatch(makefile, -1) {
		for _, name := range strings.Fields(string(match[1])) {
			targets[name] = true
		}
	}
	return r.each(isMarkdown, func(name string, data []byte) []Finding {
		var found []Finding
		eachLine(data, func(n int, line string, fenced bool) {
			for _, command := range commands(line, fenced) {
				for _, named := range makeTargets(command) {
					if !targets[named] {
						found = append(found, Finding{name, n, "no such make target: " + named})
					}
				}
			}
		})
		return found
	})
}

// commands are what a line of a document shows to be typed.
func commands(line string, fenced bool) []string {
	if fenced {
		return []string{strings.TrimPrefix(strings.TrimSpace(line), "$ ")}
	}
	var all []string
	for _, code := range inlineCode.FindAllStringSubmatch(line, -1) {
		all = append(all, code[1])
	}
	return all
}

// makeTargets are the targets of a make command: its words up to a comment or another
// command, without options and variables.
func makeTargets(command string) []string {
	words := strings.Fields(command)
	if len(words) == 0 || words[0] != "make" {
		return nil
	}
	var targets []string
	for _, word := range words[1:] {
		if strings.ContainsAny(word[:1], "#&|;>") {
			break
		}
		if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
			targets = append(targets, strings.TrimRight(word, ",;"))
		}
	}
	return targets
}

// UnlistedDecisions finds decision records that the index does not link to.
func (r *Repo) UnlistedDecisions() ([]Finding, error) {
	const index = "docs/adr/README.md"
	listed, err := r.read(index)
	if err != nil {
		return nil, err
	}
	keep := func(name string) bool {
		return path.Dir(name) == "docs/adr" && isMarkdown(name) && name != index
	}
	return r.each(keep, func(name string, _ []byte) []Finding {
		if strings.Contains(string(listed), "]("+path.Base(name)+")") {
			return nil
		}
		return []Finding{{File: name, Text: "not listed in " + index}}
	})
}

// maxDecisionWords is one page of prose. Rows of tables do not count.
const maxDecisionWords = 650

// LongDecisions finds decision records that do not fit on a page.
func (r *Repo) LongDecisions() ([]Finding, error) {
	keep := func(name string) bool { return path.Dir(name) == "docs/adr" && isMarkdown(name) }
	return r.each(keep, func(name string, data []byte) []Finding {
		words := 0
		for _, line := range lines(data) {
			if !strings.HasPrefix(line, "|") {
				words += len(strings.Fields(line))
			}
		}
		if words <= maxDecisionWords {
			return nil
		}
		return []Finding{{File: name, Text: fmt.Sprintf("%d words: a decision fits on a page, at most %d words outside of tables", words, maxDecisionWords)}}
	})
}

// eachLine visits the lines of a Markdown document, and reports for each whether it is in a fenced
// block. The fences themselves are left out.
func eachLine(data []byte, visit func(n int, line string, fenced bool)) {
	fenced := false
	for i, line := range lines(data) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		visit(i+1, line, fenced)
	}
}
