package demo

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestStreams(t *testing.T) {
	t.Parallel()
	for _, s := range streams() {
		t.Run("quickly at first, later now and then: "+s.pipeline+" of "+s.tenant, func(t *testing.T) {
			t.Parallel()
			require.True(t, s.due(0))
			const minutes10, hour = 10 * 60 / 5, 60 * 60 / 5 // in rounds
			later := 0
			for round := minutes10; round < minutes10+hour; round++ {
				if s.due(round) {
					later++
				}
			}
			require.Positive(t, later)
			require.LessOrEqual(t, later, 60, "at most one a minute")
			require.Positive(t, s.atOnce)
			_, err := s.parameters(1)
			require.NoError(t, err)
		})
	}

	t.Run("the first run of hello meets a bad network, the others the manifest's", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "bad", helloValues(0)["network"])
		require.NotContains(t, helloValues(1), "network")
		require.NotEqual(t, helloValues(1)["day"], helloValues(2)["day"])
	})
}

func TestFiles(t *testing.T) {
	t.Parallel()

	t.Run("configs are saved in the workspace that they name, enabled or not", func(t *testing.T) {
		t.Parallel()
		requests, err := readConfigs(fstest.MapFS{
			"c/a.yaml": {Data: []byte("name: a\npipeline: p\nenabled: false\n")},
			"c/b.yaml": {Data: []byte("name: b\npipeline: p\nworkspace: staging\n")},
			"c/c.yaml": {Data: []byte("name: c\npipeline: p\nworkspace: default\n")},
		}, "c")
		require.NoError(t, err)
		require.Len(t, requests, 2)
		require.Equal(t, "default", requests[0].GetWorkspace())
		require.Len(t, requests[0].GetConfigs(), 2)
		require.Equal(t, "p", requests[0].GetConfigs()[0].GetSpec().GetPipeline())
		require.False(t, requests[0].GetConfigs()[0].GetEnabled())
		require.Nil(t, requests[0].GetConfigs()[1].Enabled)
		require.Equal(t, "staging", requests[1].GetWorkspace())
	})

	t.Run("a mistake is reported with its file", func(t *testing.T) {
		t.Parallel()
		for text, wrong := range map[string]string{
			"pipeline: p": "name is missing", "name: 3": "name is 3", "name: a\ntriger: {}": "triger", "name: [": "yaml",
		} {
			_, err := readConfigs(fstest.MapFS{"c/a.yaml": {Data: []byte(text)}}, "c")
			require.ErrorContains(t, err, "c/a.yaml: ")
			require.ErrorContains(t, err, wrong)
		}
	})

	t.Run("two manifests are one, with the assets of both", func(t *testing.T) {
		t.Parallel()
		whole, err := readManifests([]byte("version: 1\nassets: [{key: a/b}]\n"), []byte("version: 1\nassets: [{key: c/d}]\npipelines: [{name: p}]\n"))
		require.NoError(t, err)
		require.Equal(t, map[string]any{
			"version": 1.0, "assets": []any{map[string]any{"key": "a/b"}, map[string]any{"key": "c/d"}}, "pipelines": []any{map[string]any{"name": "p"}},
		}, whole.AsMap())
	})
}
