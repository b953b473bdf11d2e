package plan_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
)

// layered makes n assets in layers of a hundred, each with upstreams in the layer before.
func layered(n int) *asset.Manifest {
	const width, fan = 100, 3
	m := &asset.Manifest{Version: 1}
	for i := range n {
		a := asset.Asset{Key: fmt.Sprintf("layer%03d/asset_%05d", i/width, i), Go: &asset.Go{}, Tags: []string{"daily"}}
		for j := range fan {
			if from := (i/width-1)*width + (i*7+j*31)%width; i >= width {
				a.Upstream = append(a.Upstream, fmt.Sprintf("layer%03d/asset_%05d", from/width, from))
			}
		}
		m.Assets = append(m.Assets, a)
	}
	return m
}

// BenchmarkPlan10000: the target is 150 ms for a whole plan, from a parsed manifest.
func BenchmarkPlan10000(b *testing.B) {
	m, err := layered(10_000).Normalised()
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		p, err := plan.New(m, plan.Request{})
		require.NoError(b, err)
		require.Len(b, p.Tasks, 10_000)
	}
}

// BenchmarkPlanOneOf10000 is what a trigger of a small pipeline costs with a planner kept.
func BenchmarkPlanOneOf10000(b *testing.B) {
	m, err := layered(10_000).Normalised()
	require.NoError(b, err)
	planner, err := plan.NewPlanner(m)
	require.NoError(b, err)
	request := plan.Request{Select: []string{m.Assets[0].Key}}
	b.ReportAllocs()
	for b.Loop() {
		_, err := planner.Plan(request)
		require.NoError(b, err)
	}
}

// BenchmarkParse10000 reads and validates a manifest of the largest size.
func BenchmarkParse10000(b *testing.B) {
	data, err := json.Marshal(layered(10_000))
	require.NoError(b, err)
	for _, name := range []string{"servo.json", "servo.yaml"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, err := asset.Parse(data, name)
				require.NoError(b, err)
			}
		})
	}
}
