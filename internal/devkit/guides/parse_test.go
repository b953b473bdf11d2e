package guides

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlocks(t *testing.T) {
	t.Parallel()

	t.Run("a page gives its blocks, and which of them follow one another", func(t *testing.T) {
		t.Parallel()
		found, err := blocks("# A\n\n```sh\nservo version\n```\n\n```text\nservo …\n```\nSome words.\n```go file=a/main.go\npackage main\n```\n")
		require.NoError(t, err)
		require.Equal(t, []block{
			{line: 3, kind: "sh", text: "servo version\n"},
			{line: 7, kind: "text", text: "servo …\n", next: true},
			{line: 11, kind: "go", word: "file=a/main.go", text: "package main\n"},
		}, found)
		require.True(t, found[1].promised(found[0]))
		require.False(t, found[2].promised(found[1]))
		require.Equal(t, "a/main.go", found[2].file())
	})

	t.Run("a block that no command runs is an error", func(t *testing.T) {
		t.Parallel()
		for _, page := range []string{
			"```sh foreground\n```\n", "```sh terminal=\n```\n", "```sh terminal=a b\n```\n", "```bash\n```\n", "```\n```\n", "```sh byhand\n```\n", "```go file=\n```\n", "```text x\n```\n", "```sh\n",
		} {
			_, err := blocks(page)
			require.Error(t, err, page)
		}
	})
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{
		{"a\nb\n", "a\nb"},
		{"a   b", "a b  \n\n"},
		{"run 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10", "run 01a1ddf6-1d6e-7000-9d51-f96d43914520"},
		{"10:32:01 gold/revenue SUCCEEDED in 1.2s", "06:47:36 gold/revenue SUCCEEDED in 134ms"},
		{"took 2m3.5s", "took 5s"},
		{"at 2026-01-31T10:00:00Z", "at 2026-11-15T06:47:36.301175Z"},
		{"a … c", "a b b c"},
		{"a\n…\nd", "a\nb\nc\nd"},
		{"a\n…\nd", "a\nd"},
		{"…", ""},
		{`{"a":1,"b":["c","d"],…}`, `{"a":1, "b":["c", "d"], "e":{}}`},
	} {
		require.Empty(t, compare(same[0], same[1]), "%q and %q", same[0], same[1])
	}
	for _, other := range [][2]string{
		{"a", "b"},
		{"a", "a\nb"},
		{"a\nb", "a"},
		{"a", ""},
		{"", "a"},
		{"a…", "b a"},
		{"a\n…\nd", "a\nb\nc"},
		{"a.c", "abc"},
		{"run 0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10", "run 0192f0c1"},
		{"in 1s", "in no time"},
		{"3 tasks", "4 tasks"},
	} {
		require.NotEmpty(t, compare(other[0], other[1]), "%q and %q", other[0], other[1])
	}
}
