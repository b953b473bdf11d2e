package asset

import (
	"encoding/json"
	"net/textproto"
	"reflect"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/canon"
)

// normalise fills in defaults and sorts lists whose order has no meaning, so that equivalent
// manifests have the same digest. Retry policies stay as declared: their layers are merged when a
// task fails.
func (m *Manifest) normalise() {
	for i := range m.Assets {
		m.Assets[i].normalise()
	}
	for i := range m.Pipelines {
		m.Pipelines[i].normalise()
	}
	slices.SortStableFunc(m.Assets, func(a, b Asset) int { return strings.Compare(a.Key, b.Key) })
	slices.SortStableFunc(m.Pipelines, func(a, b Pipeline) int { return strings.Compare(a.Name, b.Name) })
}

func (a *Asset) normalise() {
	if a.Pool == "" {
		a.Pool = DefaultPool
	}
	if a.Timeout == 0 {
		a.Timeout = DefaultTimeout
	}
	for _, list := range [][]string{a.Upstream, a.Tags, a.Owners} {
		slices.Sort(list)
	}
	a.Retry = a.Retry.normalised()
	if a.HTTP != nil {
		if a.HTTP.Method == "" {
			a.HTTP.Method = DefaultMethod
		}
		headers := make(map[string]string, len(a.HTTP.Headers))
		for name, value := range a.HTTP.Headers {
			headers[textproto.CanonicalMIMEHeaderKey(name)] = value
		}
		a.HTTP.Headers = headers
	}
	if a.Go != nil && a.Go.Handler == "" {
		a.Go.Handler = a.Key
	}
	a.normaliseQuality()
}

// normalised returns nil for an empty policy.
func (r *Retry) normalised() *Retry {
	if r == nil {
		return nil
	}
	slices.Sort(r.RetryOn)
	slices.Sort(r.NoRetryOn)
	if reflect.ValueOf(*r).IsZero() {
		return nil
	}
	return r
}

func (p *Pipeline) normalise() {
	if len(p.Select) == 0 {
		p.Select = []string{SelectAll}
	}
	if p.Priority == 0 {
		p.Priority = DefaultPriority
	}
	if s, err := ParseSelection(p.Select...); err == nil { // one word for each entry
		p.Select = p.Select[:0]
		for _, t := range s.terms {
			p.Select = append(p.Select, t.String())
		}
	}
	slices.Sort(p.Select)
	p.Retry = p.Retry.normalised()
	p.normaliseLock()
	slices.SortStableFunc(p.Parameters, func(a, b Parameter) int { return strings.Compare(a.Name, b.Name) })
	for i := range p.Parameters {
		p.Parameters[i].normalise()
	}
}

// normalise converts declared values into canonical form; validation has checked that they have one.
func (p *Parameter) normalise() {
	p.Default = canonical(p.Default)
	for i := range p.Enum {
		p.Enum[i] = canonical(p.Enum[i])
	}
	slices.SortFunc(p.Enum, func(a, b json.RawMessage) int { return strings.Compare(string(a), string(b)) })
}

// clone returns a copy that shares nothing that normalise changes.
func (m *Manifest) clone() (*Manifest, error) {
	data, err := canon.Marshal(m)
	if err != nil {
		return nil, err
	}
	var copied Manifest
	if err := json.Unmarshal(data, &copied); err != nil {
		return nil, err
	}
	return &copied, nil
}

// Normalised returns a copy with defaults filled in and lists sorted, for manifests that Go code
// built.
func (m *Manifest) Normalised() (*Manifest, error) {
	n, err := m.clone()
	if err != nil {
		return nil, err
	}
	n.normalise()
	return n, nil
}

// Canonical returns the normalised manifest as RFC 8785 JSON: the form that is stored and signed.
func (m *Manifest) Canonical() ([]byte, error) {
	n, err := m.Normalised()
	if err != nil {
		return nil, err
	}
	return canon.Marshal(n)
}

// Digest returns the sha256 of Canonical, in hexadecimal.
func (m *Manifest) Digest() (string, error) {
	canonical, err := m.Canonical()
	if err != nil {
		return "", err
	}
	return canon.Sum(canonical), nil
}

// find returns the entry of a sorted list with a name.
func find[T any](sorted []T, name string, nameOf func(T) string) (T, bool) {
	i, ok := slices.BinarySearchFunc(sorted, name, func(entry T, name string) int { return strings.Compare(nameOf(entry), name) })
	if !ok {
		var none T
		return none, false
	}
	return sorted[i], true
}
