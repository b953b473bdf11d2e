package canon_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
)

// FuzzJSON: whatever comes in, there is a fault or a fixed point, and what is accepted is
// JSON for the standard library too.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"b":[1,2.50,-0,1e30],"a":"\u20ac\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, input []byte) {
		once, err := canon.JSON(input)
		if err != nil {
			if f, ok := fault.As(err); !ok || f.Message == "" || f.Violation.Remedy == "" {
				t.Fatalf("not a whole fault: %v", err)
			}
			if err.Error() == "" || bytes.Contains([]byte(err.Error()), []byte("canonicalisable")) {
				t.Fatalf("checked input was refused later: %v", err)
			}
			return
		}
		if !json.Valid(input) {
			t.Fatalf("accepted what is not JSON: %q", input)
		}
		twice, err := canon.JSON(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("not a fixed point: %q, then %q, %v", once, twice, err)
		}
	})
}
