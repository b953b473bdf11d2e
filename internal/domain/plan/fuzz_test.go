package plan_test

import (
	"encoding/json"
	"testing"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/plan"
)

// FuzzPlan: whatever is asked for, there is a whole fault, or a plan that is the same when
// it is asked for again.
func FuzzPlan(f *testing.F) {
	planner, err := plan.NewPlanner(manifest(f, shop))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("revenue", "", `{"day":"2026-01-01"}`)
	f.Fuzz(func(t *testing.T, pipeline, selection, parameters string) {
		request := plan.Request{Pipeline: pipeline, Parameters: json.RawMessage(parameters)}
		if selection != "" {
			request.Select = []string{selection}
		}
		one, err := planner.Plan(request)
		if err != nil {
			if f, ok := fault.As(err); !ok || f.Code != fault.InvalidArgument && f.Code != fault.LimitExceeded || f.Message == "" || f.Violation.Remedy == "" {
				t.Fatalf("not a whole fault: %v", err)
			}
			return
		}
		request.Parameters = one.Parameters
		two, err := planner.Plan(request)
		if err != nil || one.Fingerprint != two.Fingerprint {
			t.Fatalf("%v and %v, %v", one, two, err)
		}
	})
}
