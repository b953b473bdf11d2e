package tidy

import (
	"bufio"
	"bytes"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
)

// UndocumentedPackages finds packages without a doc comment in any of their files.
func (r *Repo) UndocumentedPackages() ([]Finding, error) {
	documented := map[string]bool{}
	var order []string
	found, err := r.each(isGo, func(name string, data []byte) []Finding {
		dir := path.Dir(name)
		file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return []Finding{{File: name, Text: err.Error()}}
		}
		if _, seen := documented[dir]; !seen {
			order = append(order, dir)
			documented[dir] = false
		}
		if file.Doc != nil && len(strings.TrimSpace(file.Doc.Text())) > 0 || generated.Match(data) {
			documented[dir] = true
		}
		return nil
	})
	for _, dir := range order {
		if !documented[dir] {
			found = append(found, Finding{File: dir, Text: "no package comment: state what it is for and what it never does"})
		}
	}
	return found, err
}

var moduleLine = regexp.MustCompile(`^\s*(?:require|tool)?\s*([\w.-]+\.[\w.-]+/[\w./-]+)( v\S+)?(?:\s*//\s*(.*))?$`)

// UnexplainedDependencies finds direct dependencies and tools that docs/dependencies.md
// does not name.
func (r *Repo) UnexplainedDependencies() ([]Finding, error) {
	const list = "docs/dependencies.md"
	explained, err := r.read(list)
	if err != nil {
		return nil, err
	}
	direct := func(name string, line, block string) string {
		match := moduleLine.FindStringSubmatch(line)
		switch {
		case match == nil:
			return ""
		case name == "go.mod" && match[2] != "" && !strings.Contains(match[3], "indirect"):
			return match[1]
		case strings.HasPrefix(name, "tools/") && (block == "tool" || strings.HasPrefix(line, "tool ")):
			return match[1]
		}
		return ""
	}
	keep := func(name string) bool {
		return name == "go.mod" || name == "tools/go.mod" || name == "tools/contract/go.mod"
	}
	return r.each(keep, func(name string, data []byte) []Finding {
		var found []Finding
		block := ""
		scanner := bufio.NewScanner(bytes.NewReader(data))
		for n := 1; scanner.Scan(); n++ {
			line := scanner.Text()
			if opened, ok := strings.CutSuffix(line, " ("); ok {
				block = opened
				continue
			}
			if line == ")" {
				block = ""
			}
			if module := direct(name, line, block); module != "" && !bytes.Contains(explained, []byte("`"+module+"`")) {
				found = append(found, Finding{name, n, module + " is not explained in " + list})
			}
		}
		return found
	})
}
