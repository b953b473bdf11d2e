package asset_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"go.arco.dev/servo/internal/domain/asset"
)

// schema is the published one.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "schema", "manifest-v1.schema.json"))
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("manifest.json", document))
	compiled, err := compiler.Compile("manifest.json")
	require.NoError(t, err)
	return compiled
}

// tree reads YAML as an editor with the schema would.
func tree(t *testing.T, data []byte) any {
	t.Helper()
	var value any
	require.NoError(t, yaml.Unmarshal(data, &value))
	return textual(value)
}

// textual turns what YAML knows and JSON does not (dates) into text.
func textual(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = textual(v[key])
		}
		return v
	case []any:
		for i := range v {
			v[i] = textual(v[i])
		}
		return v
	case nil, bool, int, float64, string:
		return v
	}
	return "a date"
}

func TestSchema(t *testing.T) {
	t.Parallel()
	published := schema(t)

	t.Run("every good manifest is good for both", func(t *testing.T) {
		t.Parallel()
		names, err := filepath.Glob(filepath.Join("testdata", "good", "*"))
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			_, err = asset.Parse(data, name)
			require.NoError(t, err, name)
			require.NoError(t, published.Validate(tree(t, data)), name)
		}
	})

	t.Run("a normalised manifest is good for both", func(t *testing.T) {
		t.Parallel()
		m := readGood(t, "full.yaml")
		canonical, err := m.Canonical()
		require.NoError(t, err)
		again, err := asset.Parse(canonical, "servo.json")
		require.NoError(t, err)
		require.Equal(t, m, again)
		require.NoError(t, published.Validate(tree(t, canonical)))
	})

	t.Run("the schema refuses what it can see, and only that", func(t *testing.T) {
		t.Parallel()
		for name, c := range bad {
			err := published.Validate(tree(t, []byte(c.yaml)))
			if c.inSchema {
				require.Error(t, err, name)
			} else {
				require.NoError(t, err, name)
			}
		}
	})

	t.Run("the manifests of the guide are good for both", func(t *testing.T) {
		t.Parallel()
		guide, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "manifest.md"))
		require.NoError(t, err)
		blocks := strings.Split(string(guide), "```yaml\n")[1:]
		manifests := 0
		for _, block := range blocks {
			text, _, _ := strings.Cut(block, "```")
			if !strings.HasPrefix(text, "version: 1\n") {
				continue
			}
			manifests++
			_, err := asset.Parse([]byte(text), "servo.yaml")
			require.NoError(t, err, text)
			require.NoError(t, published.Validate(tree(t, []byte(text))), text)
		}
		require.NotZero(t, manifests)
	})
}
