package asset

import (
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/secret"
)

// Validate checks all rules of a manifest and reports every violation.
func (m *Manifest) Validate() error {
	found := newViolations(fault.InvalidManifest)
	m.validate(found)
	return found.err()
}

func (m *Manifest) validate(found *violations) {
	if m.Version != Version {
		found.add("version", fmt.Sprintf("is %d, this build reads version %d", m.Version, Version), "write version: 1")
	}
	if len(m.Assets) == 0 {
		found.add("assets", "the manifest has no assets", "list at least one asset")
	}
	limit(found, "assets", len(m.Assets), MaxAssets, "split the manifest into several deployments")
	limit(found, "pipelines", len(m.Pipelines), MaxPipelines, "split the manifest into several deployments")
	if len(m.Assets) > MaxAssets || len(m.Pipelines) > MaxPipelines {
		return
	}
	unique(found, "assets", m.Assets, ".key", func(a Asset) string { return a.Key })
	for i := range m.Assets {
		m.Assets[i].validate(found, assetPath(i, m.Assets[i].Key))
	}
	g := newGraph(m.Assets)
	m.validateUpstream(found, g)
	m.validateMappings(found, g)
	for _, cycle := range g.cycles() {
		found.addCode(fault.CycleDetected, cycleField(cycle), cycleMessage(cycle), remedyCycle)
	}
	unique(found, "pipelines", m.Pipelines, ".name", func(p Pipeline) string { return p.Name })
	for i := range m.Pipelines {
		m.Pipelines[i].validate(found, pipelinePath(i, m.Pipelines[i].Name), g)
	}
}

// unique reports duplicate names.
func unique[T any](found *violations, list string, entries []T, field string, nameOf func(T) string) {
	first := make(map[string]int, len(entries))
	for i, entry := range entries {
		name := nameOf(entry)
		if name == "" {
			continue
		}
		if j, there := first[name]; there {
			found.add(at(list, i)+field, fmt.Sprintf("duplicate name %s, first used by %s", quoted(name), at(list, j)), "rename or remove one of them")
			continue
		}
		first[name] = i
	}
}

func (m *Manifest) validateUpstream(found *violations, g *Graph) {
	for i := range m.Assets {
		a := &m.Assets[i]
		path := assetPath(i, a.Key) + ".upstream"
		limit(found, path, len(a.Upstream), MaxUpstream, "combine some of them in an intermediate asset")
		seen := make(map[string]bool, len(a.Upstream))
		for j, key := range a.Upstream {
			_, known := g.index[key]
			switch {
			case found.full() && !known:
				found.add("", "", "") // counted, not shown: searching for a suggestion is expensive
			case key == a.Key:
				found.addCode(fault.CycleDetected, at(path, j), "cycle: "+printable(key)+" names itself", "remove it")
			case !known:
				found.add(at(path, j), g.unknown(key), remedyUnknownAsset)
			case seen[key]:
				found.add(at(path, j), key+" is listed twice", "remove it")
			}
			seen[key] = true
		}
	}
}

func (a *Asset) validate(found *violations, path string) {
	matches(found, path+".key", a.Key, keyPattern, "is not a valid key", "write namespace/name in lower case letters, digits, '_', '-' and '.', such as gold/revenue")
	length(found, path+".description", a.Description, MaxDescription)
	if a.Pool != "" {
		matches(found, path+".pool", a.Pool, namePattern, "is not a valid pool name", "use lower case letters, digits, '_', '-' and '.'")
	}
	if a.Timeout != 0 {
		within(found, path+".timeout", a.Timeout, minTimeout, maxTimeout)
	}
	a.Retry.validate(found, path+".retry")
	words(found, path+".tags", a.Tags, MaxTags, tagPattern, "is not a valid tag", "use lower case letters, digits, '_', '-', '.' and ':', at most 63")
	words(found, path+".owners", a.Owners, MaxOwners, ownerPattern, "is not a valid owner", "write a team or an address, such as data-platform or ann@example.com")
	a.validateCode(found, path)
	a.validatePartitions(found, path)
	a.validateQuality(found, path)
}

func (a *Asset) validateCode(found *violations, path string) {
	var kinds []string
	if a.Exec != nil {
		kinds = append(kinds, string(KindExec))
		a.Exec.validate(found, path+".exec")
	}
	if a.HTTP != nil {
		kinds = append(kinds, string(KindHTTP))
		a.HTTP.validate(found, path+".http")
	}
	if a.Go != nil {
		kinds = append(kinds, string(KindGo))
		if a.Go.Handler != "" {
			matches(found, path+".go.handler", a.Go.Handler, handlerPattern, "is not a valid handler name", "use letters, digits, '_', '-', '.' and '/'")
		}
	}
	if a.Python != nil {
		kinds = append(kinds, string(KindPython))
		if a.Python.Function != "" {
			matches(found, path+".python.function", a.Python.Function, functionPattern, "is not a valid function", "write module:name, such as shop.assets:revenue")
		}
		if a.Python.Code != "" {
			matches(found, path+".python.code", a.Python.Code, digestPattern, "is not a digest", "write sha256: and 64 hexadecimal digits, as servo build prints them")
		}
	}
	switch len(kinds) {
	case 1:
	case 0:
		found.add(path, "has no code", "add one of exec, http, go, python")
	default:
		found.add(path, "has more than one kind of code: "+strings.Join(kinds, ", "), "remove all but one")
	}
}

func (e *Exec) validate(found *violations, path string) {
	if len(e.Command) == 0 {
		found.add(path+".command", "is empty", `write the command as a list, such as ["python", "-m", "orders"]`)
	} else if e.Command[0] == "" {
		found.add(at(path+".command", 0), "is empty", "name a program")
	}
	limit(found, path+".command", len(e.Command), MaxCommand, "put the arguments into a file")
	for i, argument := range e.Command {
		storable(found, at(path+".command", i), argument)
		length(found, at(path+".command", i), argument, MaxArgument)
	}
	limit(found, path+".env", len(e.Env), MaxEnv, "put the settings into a file")
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		field := join(path+".env", name)
		matches(found, field, name, envPattern, "is not a valid variable name", "use letters, digits and '_', not a digit first")
		if strings.HasPrefix(name, "SERVO_") {
			found.add(field, "names that begin with SERVO_ are reserved", "choose another name")
		}
		storable(found, field, e.Env[name])
		length(found, field, e.Env[name], MaxEnvValue)
		validateSecrets(found, field, e.Env[name])
	}
}

func (h *HTTP) validate(found *violations, path string) {
	validateURL(found, path+".url", h.URL)
	methods := []string{"DELETE", "GET", "PATCH", "POST", "PUT"}
	if h.Method != "" && !slices.Contains(methods, h.Method) {
		found.add(path+".method", quoted(h.Method)+" is not a supported method", "choose one of "+strings.Join(methods, ", "))
	}
	limit(found, path+".headers", len(h.Headers), MaxHeaders, "send the values in the body")
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		field := join(path+".headers", name)
		matches(found, field, name, headerPattern, "is not a valid header name", "use letters, digits and '-'")
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if seen[canonical] {
			found.add(field, "duplicate header "+canonical+" in different letter case", "remove one of them")
		}
		seen[canonical] = true
		switch canonical {
		case "Connection", "Content-Length", "Host", "Transfer-Encoding":
			found.add(field, canonical+" is set by the transport", "remove it")
		}
		storable(found, field, h.Headers[name])
		length(found, field, h.Headers[name], MaxHeaderValue)
		validateSecrets(found, field, h.Headers[name])
		if strings.ContainsFunc(h.Headers[name], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			found.add(field, "contains a control character", "write the value on one line")
		}
	}
}

// validateSecrets refuses malformed references to secrets.
func validateSecrets(found *violations, path, text string) {
	if _, err := secret.Refs(text); err != nil {
		if f, ok := fault.As(err); ok {
			found.add(path, f.Message, f.Violation.Remedy)
		}
	}
}

func validateURL(found *violations, path, text string) {
	const remedy = "write an absolute URL such as https://example.com/build"
	length(found, path, text, MaxURL)
	u, err := url.Parse(text)
	switch {
	case text == "":
		found.add(path, "is empty", remedy)
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		found.add(path, quoted(text)+" is not an http or https URL", remedy)
	case u.User != nil:
		found.add(path, "contains a user name or password", "send credentials in a header, from a secret")
	case u.Fragment != "":
		found.add(path, "has a fragment, which is never sent", "remove the part from '#' on")
	}
}

// Check validates a retry policy by the rules of a manifest. Its errors name fields below path.
func (r *Retry) Check(path string) error {
	found := newViolations(fault.InvalidArgument)
	r.validate(found, path)
	return found.err()
}

func (r *Retry) validate(found *violations, path string) {
	if r == nil {
		return
	}
	ifSet(found, path+".max_deaths", r.MaxDeaths, 1, maxAttempts)
	ifSet(found, path+".max_attempts", r.MaxAttempts, 1, maxAttempts)
	ifSet(found, path+".initial_delay", r.InitialDelay, minDelay, maxInitialDelay)
	ifSet(found, path+".max_delay", r.MaxDelay, minDelay, maxMaxDelay)
	ifSet(found, path+".multiplier", r.Multiplier, 1, maxMultiplier)
	ifSet(found, path+".jitter", r.Jitter, minJitter, 1)
	ifSet(found, path+".timeout_growth", r.TimeoutGrowth, 1, maxTimeoutGrowth)
	switch {
	case r.InitialDelay != 0 && r.MaxDelay != 0 && r.MaxDelay < r.InitialDelay:
		found.add(path+".max_delay", fmt.Sprintf("is %s, less than initial_delay %s", r.MaxDelay, r.InitialDelay), "raise it or lower initial_delay")
	case r.MaxDelay == 0 && r.InitialDelay > DefaultMaxDelay:
		found.add(path+".initial_delay", fmt.Sprintf("is %s, more than the default max_delay %s", r.InitialDelay, DefaultMaxDelay), "set max_delay too, or lower initial_delay")
	}
	const remedy = "write a code such as RATE_LIMITED"
	words(found, path+".retry_on", r.RetryOn, MaxRetryCodes, codePattern, "is not a valid error code", remedy)
	words(found, path+".no_retry_on", r.NoRetryOn, MaxRetryCodes, codePattern, "is not a valid error code", remedy)
	for i, code := range r.NoRetryOn {
		if slices.Contains(r.RetryOn, code) {
			found.add(at(path+".no_retry_on", i), quoted(code)+" is in retry_on too", "keep it in one of the two")
		}
	}
}

func (p *Pipeline) validate(found *violations, path string, g *Graph) {
	matches(found, path+".name", p.Name, namePattern, "is not a valid name", "use lower case letters, digits, '_', '-' and '.', such as daily-revenue")
	length(found, path+".description", p.Description, MaxDescription)
	p.Retry.validate(found, path+".retry")
	if p.MaxExecution != 0 {
		within(found, path+".max_execution", p.MaxExecution, minMaxExecution, maxMaxExecution)
	}
	if p.Priority != 0 {
		within(found, path+".priority", p.Priority, minPriority, maxPriority)
	}
	p.validateLock(found, path)
	parseSelection(found, path+".select", p.Select).reportNothing(found, path+".select", g)
	p.validateParameters(found, path)
}

// The rules below check one value each.

func matches(found *violations, field, text string, pattern *regexp.Regexp, message, remedy string) {
	switch {
	case text == "":
		found.add(field, "is missing", remedy)
	case !pattern.MatchString(text):
		found.add(field, quoted(text)+" "+message, remedy)
	}
}

// words checks a list of short words: their number, their syntax, and that they are distinct.
func words(found *violations, path string, list []string, most int, pattern *regexp.Regexp, message, remedy string) {
	limit(found, path, len(list), most, "use fewer entries")
	for i, word := range list {
		if word == "" {
			found.add(at(path, i), "is empty", remedy)
		}
		matches(found, at(path, i), word, pattern, message, remedy)
		if slices.Contains(list[:i], word) {
			found.add(at(path, i), quoted(word)+" is listed twice", "remove it")
		}
	}
}

func limit(found *violations, field string, n, most int, remedy string) {
	if n > most {
		found.add(field, tooMany(n, most), remedy)
	}
}

// length counts characters, as the published schema does.
func length(found *violations, field, text string, most int) {
	storable(found, field, text)
	if n := utf8.RuneCountInString(text); n > most {
		found.add(field, fmt.Sprintf("has %d characters, the limit is %d", n, most), "shorten it")
	}
}

// storable refuses text that PostgreSQL cannot store.
func storable(found *violations, field, text string) {
	if !utf8.ValidString(text) {
		found.add(field, "is not valid UTF-8", "write UTF-8 text")
	} else if strings.ContainsRune(text, 0) {
		found.add(field, "contains a NUL character", "remove it")
	}
}

// ifSet checks a value that is not zero.
func ifSet[T ~int | ~int64 | ~float64](found *violations, field string, value, low, high T) {
	if value != 0 {
		within(found, field, value, low, high)
	}
}

func within[T ~int | ~int64 | ~float64](found *violations, field string, value, low, high T) {
	if !(value >= low && value <= high) { // also refuses NaN
		found.add(field, outOfRange(value, low, high), "choose a value in the range")
	}
}
