package asset_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
)

func TestPartitionsOfAManifest(t *testing.T) {
	t.Parallel()
	m := readGood(t, "partitions.yaml")
	canonical, err := m.Canonical()
	require.NoError(t, err)
	var back asset.Manifest
	require.NoError(t, json.Unmarshal(canonical, &back))
	require.Equal(t, m, &back)
	graph, err := asset.NewGraph(m.Assets)
	require.NoError(t, err)
	schemes, err := asset.NewSchemes(graph)
	require.NoError(t, err)
	require.True(t, schemes.Any())
	total, _ := graph.Index("gold/total")
	orders, _ := graph.Index("silver/orders")
	require.Nil(t, schemes.Of(total))
	require.Equal(t, "date (daily)", schemes.Of(orders).String())
	require.EqualValues(t, asset.MaxPerTask, graph.Asset(orders).PartitionsPerTask.Most())
}

func TestPartitionViolations(t *testing.T) {
	t.Parallel()
	const daily = `partitions: [{dimension: date, kind: daily, start: "2026-01-01"}]`
	for want, yaml := range map[string]string{
		`assets[a/b].partitions[0].start: is missing`:                       `[{key: a/b, go: {}, partitions: [{dimension: date, kind: daily}]}]`,
		`assets[a/b].partitions[0].values: is missing`:                      `[{key: a/b, go: {}, partitions: [{dimension: date, kind: static}]}]`,
		`assets[a/b].partitions[0].kind: dynamic dimensions are not`:        `[{key: a/b, go: {}, partitions: [{dimension: c, kind: dynamic, source: clients}]}]`,
		`assets[a/b].partitions: is empty`:                                  `[{key: a/b, go: {}, partitions: []}]`,
		`assets[a/b].partitions[0].knd: unknown field; did you mean kind?`:  `[{key: a/b, go: {}, partitions: [{dimension: date, knd: daily, kind: daily, start: "2026-01-01"}]}]`,
		`assets[a/b].partitions[0].end_offset: is 1.5`:                      `[{key: a/b, go: {}, partitions: [{dimension: date, kind: daily, start: "2026-01-01", end_offset: 1.5}]}]`,
		`assets[a/b].partitions_per_task: the asset has no partitions`:      `[{key: a/b, go: {}, partitions_per_task: 3}]`,
		`assets[a/b].partitions_per_task: must be all or a number`:          `[{key: a/b, go: {}, partitions_per_task: some, ` + daily + `}]`,
		`assets[a/b].partition_mapping[a/c]: a/c is not an upstream`:        `[{key: a/b, go: {}, partition_mapping: {a/c: all}, ` + daily + `}, {key: a/c, go: {}}]`,
		`assets[a/b].partition_mapping[a/b]: "all" is not a mapping of an`:  `[{key: a/b, go: {}, partition_mapping: {a/b: all}, ` + daily + `}]`,
		`assets[a/b].partition_mapping[a/b]: previous needs a time`:         `[{key: a/b, go: {}, partition_mapping: {a/b: previous}, partitions: [{dimension: r, kind: static, values: [x]}]}]`,
		`assets[a/c].partition_mapping[a/b]: previous is for the asset`:     `[{key: a/b, go: {}, ` + daily + `}, {key: a/c, go: {}, upstream: [a/b], partition_mapping: {a/b: previous}, ` + daily + `}]`,
		`assets[a/c].partition_mapping[a/b]: only the upstream has time`:    `[{key: a/b, go: {}, ` + daily + `}, {key: a/c, go: {}, upstream: [a/b], partitions: [{dimension: r, kind: static, values: [x]}]}]`,
		`assets[a/c].partition_mapping[a/b]: unknown mapping "each"`:        `[{key: a/b, go: {}, ` + daily + `}, {key: a/c, go: {}, upstream: [a/b], partition_mapping: {a/b: each}, ` + daily + `}]`,
		`assets[a/c].partition_mapping[a/b]: "last 2 days" needs partition`: `[{key: a/b, go: {}}, {key: a/c, go: {}, upstream: [a/b], partition_mapping: {a/b: last 2 days}, ` + daily + `}]`,
	} {
		_, err := asset.Parse([]byte("version: 1\nassets: "+yaml), "servo.yaml")
		f, ok := fault.As(err)
		require.True(t, ok, want)
		require.Len(t, f.Violations(), 1, "%s: %v", want, err)
		require.ErrorContains(t, err, want)
		require.NotEmpty(t, f.Violation.Remedy)
	}
}
