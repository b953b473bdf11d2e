package daemon

import (
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// paths are the patterns of the API's REST paths, for labels: however many tenants and runs
// are asked for, the patterns stay the same few.
type paths struct{ patterns []pattern }

// pattern is one path of the contract. A segment that is * stands for any text; verb is
// what follows the last colon.
type pattern struct {
	text     string
	segments []string
	verb     string
}

const (
	otherPath = "other" // labels what is no path of ours
	anyText   = "*"
)

// contractPaths reads the patterns from the contract.
func contractPaths() *paths {
	p := &paths{}
	for _, own := range []string{"/", "/healthz", "/readyz", "/metrics", "/openapi.json"} {
		p.add(own)
	}
	name := servov1.File_servo_v1_runs_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(name, func(file protoreflect.FileDescriptor) bool {
		for s := range file.Services().Len() {
			methods := file.Services().Get(s).Methods()
			for m := range methods.Len() {
				rule, ok := proto.GetExtension(methods.Get(m).Options(), annotations.E_Http).(*annotations.HttpRule)
				if !ok || rule == nil {
					continue
				}
				p.add(ruleText(rule))
				for _, other := range rule.GetAdditionalBindings() {
					p.add(ruleText(other))
				}
			}
		}
		return true
	})
	return p
}

func ruleText(rule *annotations.HttpRule) string {
	for _, text := range []string{rule.GetGet(), rule.GetPost(), rule.GetPut(), rule.GetPatch(), rule.GetDelete()} {
		if text != "" {
			return text
		}
	}
	return rule.GetCustom().GetPath()
}

// add takes a pattern such as /v1/tenants/{tenant}/assets/{asset=*/*} or …/{run}:cancel.
func (p *paths) add(text string) {
	plain := text
	for {
		begin := strings.IndexByte(plain, '{')
		end := strings.IndexByte(plain, '}')
		if begin < 0 || end < begin {
			break
		}
		_, shape, ok := strings.Cut(plain[begin+1:end], "=")
		if !ok {
			shape = "*"
		}
		plain = plain[:begin] + shape + plain[end+1:]
	}
	path, verb := cutVerb(plain)
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if strings.HasPrefix(segment, "*") {
			segments[i] = anyText
		}
	}
	segments = segments[1:] // before the first slash there is nothing
	p.patterns = append(p.patterns, pattern{text: text, segments: segments, verb: verb})
}

// pattern is the one that a path belongs to.
func (p *paths) pattern(path string) string {
	verbless, verb := cutVerb(path)
	whole, parts := strings.Split(path, "/"), strings.Split(verbless, "/")
	for _, candidate := range p.patterns {
		if candidate.verb == verb && candidate.matches(parts[1:]) {
			return candidate.text
		}
	}
	for _, candidate := range p.patterns { // a colon may be part of a name
		if candidate.verb == "" && candidate.matches(whole[1:]) {
			return candidate.text
		}
	}
	return otherPath
}

func (p pattern) matches(segments []string) bool {
	if len(segments) != len(p.segments) {
		return false
	}
	for i, want := range p.segments {
		if want != segments[i] && (want != anyText || segments[i] == "") {
			return false
		}
	}
	return true
}

// cutVerb cuts ":cancel" off the last segment.
func cutVerb(path string) (rest, verb string) {
	colon := strings.LastIndexByte(path, ':')
	if colon <= strings.LastIndexByte(path, '/') {
		return path, ""
	}
	return path[:colon], path[colon+1:]
}
