package suggest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/suggest"
)

func TestClosest(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		word       string
		candidates []string
		want       string
	}{
		"a missing letter":                  {"analytics/user_metric", []string{"analytics/users", "analytics/user_metrics"}, "analytics/user_metrics"},
		"two letters swapped":               {"gold/reveneu", []string{"gold/revenue", "gold/other"}, "gold/revenue"},
		"a swap counts once":                {"ab", []string{"ba"}, "ba"},
		"the alphabet breaks ties":          {"cat", []string{"hat", "bat", "rat"}, "bat"},
		"nothing is near":                   {"gold/revenue", []string{"silver/x", "bronze/orders"}, ""},
		"short words need a near match":     {"ab", []string{"xy"}, ""},
		"the word itself is no suggestion":  {"pool", []string{"pool"}, ""},
		"letters are counted, not bytes":    {"größe", []string{"grösse"}, ""},
		"one letter in another script":      {"größen", []string{"größe"}, "größe"},
		"no candidates":                     {"a", nil, ""},
		"nothing is compared with a novel":  {strings.Repeat("a", 1000), []string{strings.Repeat("a", 999)}, ""},
		"four letters are too far anywhere": {"abcdefghijklmnopqrst", []string{"abcdefghijklmnopWXYZ"}, ""},
		"three letters are not":             {"abcdefghijklmnopqrst", []string{"abcdefghijklmnopqXYZ"}, "abcdefghijklmnopqXYZ"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := suggest.Closest(c.word, c.candidates)
			require.Equal(t, c.want, got)
			require.Equal(t, c.want != "", ok)
		})
	}

	t.Run("the order of the candidates does not matter", func(t *testing.T) {
		t.Parallel()
		word := rapid.StringMatching(`[ab]{1,8}`)
		rapid.Check(t, func(t *rapid.T) {
			candidates := rapid.SliceOfN(word, 1, 10).Draw(t, "candidates")
			w := word.Draw(t, "word")
			shuffled := rapid.Permutation(candidates).Draw(t, "shuffled")
			one, _ := suggest.Closest(w, candidates)
			two, _ := suggest.Closest(w, shuffled)
			require.Equal(t, one, two)
		})
	})
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	require.Equal(t, "; did you mean pool?", suggest.DidYouMean("pol", []string{"tags", "pool"}))
	require.Empty(t, suggest.DidYouMean("nothing", []string{"tags", "pool"}))
}
