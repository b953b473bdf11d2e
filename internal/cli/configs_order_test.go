package cli

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestNamedFirst(t *testing.T) {
	t.Parallel()
	config := func(name, after string) document {
		spec := &servov1.ConfigSpec{Trigger: &servov1.ConfigTrigger{Manual: true}}
		if after != "" {
			spec.Trigger = &servov1.ConfigTrigger{Event: &servov1.ConfigEvent{Config: after}}
		}
		return document{input: &servov1.ConfigInput{Name: name, Spec: spec}}
	}
	names := func(documents []document) (out []string) {
		for _, d := range documents {
			out = append(out, d.input.GetName())
		}
		return out
	}

	t.Run("what is named comes before those that name it, and the rest keeps its order", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"d", "c", "b", "a", "e"}, names(namedFirst([]document{config("b", "c"), config("a", "b"), config("c", "d"), config("d", ""), config("e", "elsewhere")})))
		require.Len(t, namedFirst([]document{config("a", "b"), config("b", "a")}), 2, "a circle ends")
	})

	t.Run("each call sees the names that earlier calls save, and nothing else", func(t *testing.T) {
		t.Parallel()
		var documents []document
		for i := range configsPerCall + 2 {
			documents = append(documents, config(fmt.Sprint(i), fmt.Sprint(configsPerCall+1)))
		}
		documents = append(documents, config(fmt.Sprint(configsPerCall+2), fmt.Sprint(configsPerCall)))
		documents[configsPerCall+1] = config(fmt.Sprint(configsPerCall+1), "")
		calls := callsOf("acme", namedFirst(documents), "")
		expect(calls)
		require.Len(t, calls, 2)
		require.Empty(t, calls[0].request.GetComing())
		require.Equal(t, []string{fmt.Sprint(configsPerCall + 1)}, calls[1].request.GetComing(), "the other one is saved with it")
	})
}
