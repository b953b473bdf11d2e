package asset_test

import (
	"testing"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
)

// FuzzParse: whatever comes in, there is a whole fault, or a manifest that is valid, reads
// back from its canonical form and keeps its digest.
func FuzzParse(f *testing.F) {
	f.Add([]byte("version: 1\nassets: [{key: a/b, go: {}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"servo.yaml", "servo.json"} {
			m, err := asset.Parse(data, name)
			if err != nil {
				wholeFault(t, err)
				continue
			}
			if err := m.Validate(); err != nil {
				t.Fatalf("accepted and then refused: %v", err)
			}
			canonical, err := m.Canonical()
			if err != nil {
				t.Fatal(err)
			}
			again, err := asset.Parse(canonical, "servo.json")
			if err != nil {
				t.Fatalf("canonical form is refused: %v\n%s", err, canonical)
			}
			one, err1 := m.Digest()
			two, err2 := again.Digest()
			if err1 != nil || err2 != nil || one != two {
				t.Fatalf("digest changed: %s %s %v %v", one, two, err1, err2)
			}
		}
	})
}

// FuzzSelection: whatever comes in, there is a whole fault, or a selection that prints as
// something that reads as the same selection.
func FuzzSelection(f *testing.F) {
	g, err := asset.NewGraph(wire("a", "b<a", "c<b"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("+n/b tag:x, owner:y+")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := asset.ParseSelection(text)
		if err != nil {
			wholeFault(t, err)
			return
		}
		again, err := asset.ParseSelection(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q reads as %q, then as %q, %v", text, s, again, err)
		}
		if _, err := s.Resolve(g); err != nil {
			wholeFault(t, err)
		}
	})
}

func wholeFault(t *testing.T, err error) {
	t.Helper()
	f, ok := fault.As(err)
	if !ok {
		t.Fatalf("not a fault: %v", err)
	}
	for _, v := range f.Violations() {
		if v.Code == "" || v.Message == "" || v.Remedy == "" {
			t.Fatalf("not a whole violation: %+v", v)
		}
	}
}
