package asset_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
)

// chosen resolves expressions to keys.
func chosen(t require.TestingT, assets []asset.Asset, expressions ...string) ([]string, error) {
	g, err := asset.NewGraph(assets)
	require.NoError(t, err)
	s, err := asset.ParseSelection(expressions...)
	if err != nil {
		return nil, err
	}
	selected, err := s.Resolve(g)
	if err != nil {
		return nil, err
	}
	keys := []string{}
	for i, yes := range selected {
		if yes {
			keys = append(keys, g.Asset(i).Key)
		}
	}
	return keys, nil
}

func TestSelection(t *testing.T) {
	t.Parallel()

	assets := []asset.Asset{
		{Key: "bronze/orders", Tags: []string{"daily"}, Owners: []string{"ann+x@example.com"}},
		{Key: "bronze/rates", Tags: []string{"hourly"}},
		{Key: "gold/margin", Upstream: []string{"silver/orders"}, Owners: []string{"bob"}},
		{Key: "gold/revenue", Upstream: []string{"silver/orders", "bronze/rates"}, Tags: []string{"daily"}, Owners: []string{"bob"}},
		{Key: "silver/orders", Upstream: []string{"bronze/orders"}},
	}
	for expression, want := range map[string]string{
		"gold/revenue":              "gold/revenue",
		"+gold/revenue":             "bronze/orders bronze/rates gold/revenue silver/orders",
		"silver/orders+":            "gold/margin gold/revenue silver/orders",
		"+silver/orders+":           "bronze/orders gold/margin gold/revenue silver/orders",
		"tag:daily":                 "bronze/orders gold/revenue",
		"owner:bob":                 "gold/margin gold/revenue",
		"owner:ann+x@example.com+":  "bronze/orders gold/margin gold/revenue silver/orders",
		"gold/*":                    "gold/margin gold/revenue",
		"+gold/*":                   "bronze/orders bronze/rates gold/margin gold/revenue silver/orders",
		"tag:hourly+":               "bronze/rates gold/revenue",
		"*":                         "bronze/orders bronze/rates gold/margin gold/revenue silver/orders",
		"gold/margin,bronze/rates":  "bronze/rates gold/margin",
		" gold/margin  tag:hourly ": "bronze/rates gold/margin",
		"gold/margin gold/margin":   "gold/margin",
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			got, err := chosen(t, assets, expression)
			require.NoError(t, err)
			require.Equal(t, want, strings.Join(got, " "))
		})
	}

	t.Run("several expressions are a union", func(t *testing.T) {
		t.Parallel()
		got, err := chosen(t, assets, "gold/margin", "tag:hourly")
		require.NoError(t, err)
		require.Equal(t, []string{"bronze/rates", "gold/margin"}, got)
	})

	t.Run("no expression selects nothing", func(t *testing.T) {
		t.Parallel()
		got, err := chosen(t, assets)
		require.NoError(t, err)
		require.Empty(t, got)
	})

	for expression, want := range map[string]string{
		"gold/revenu":  "select[0]: unknown asset gold/revenu; did you mean gold/revenue? (name an asset of this manifest)",
		"tag:dayly":    "select[0]: no asset with tag dayly; did you mean daily? (name a tag of this manifest)",
		"owner:bib":    "select[0]: no asset with owner bib; did you mean bob? (name an owner of this manifest)",
		"glod/*":       "select[0]: no asset in namespace glod; did you mean gold? (name a namespace of this manifest)",
		"":             "select[0]: is empty",
		"gold":         `select[0]: "gold" is not a selection`,
		"++gold/x":     `is not a selection`,
		"*/revenue":    `is not a selection`,
		"gold/r*":      `is not a selection`,
		"tag:":         `is not a selection`,
		"owner:b+":     "no asset with owner b (name",
		"state:failed": `is not a selection`,
		"+":            `is not a selection`,
		"gold/\x1b[0m": `"gold/\x1b[0m" is not a selection`,
	} {
		t.Run("refuses "+expression, func(t *testing.T) {
			t.Parallel()
			_, err := chosen(t, assets, expression)
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.ErrorContains(t, err, want)
			require.NotEmpty(t, f.Violation.Remedy)
		})
	}

	t.Run("a selection prints as what it was read from", func(t *testing.T) {
		t.Parallel()
		const text = "* +a/b+ tag:x owner:y+ +n/*"
		s, err := asset.ParseSelection(text)
		require.NoError(t, err)
		require.Equal(t, text, s.String())
	})
}

func TestSelectionAgainstOracle(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		assets := drawAssets(t, true)
		keys := make([]string, len(assets))
		for i, a := range assets {
			keys[i] = a.Key
		}
		atom := rapid.OneOf(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"*", "tag:t", "owner:o", "n0/*", "n1/*"}))
		expressions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"", "+"}).Draw(t, "up") + atom.Draw(t, "atom") + rapid.SampledFrom([]string{"", "+"}).Draw(t, "down")
		}), 1, 4).Draw(t, "expressions")

		want := map[string]bool{}
		missing := false
		for _, expression := range expressions {
			matched := naiveSelect(assets, expression)
			missing = missing || len(matched) == 0
			for key := range matched {
				want[key] = true
			}
		}
		got, err := chosen(t, assets, expressions...)
		if missing {
			require.True(t, fault.Is(err, fault.InvalidArgument))
			return
		}
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for _, key := range got {
			require.True(t, want[key], key)
		}
	})
}

// naiveSelect repeats "add whatever touches the set" until nothing changes.
func naiveSelect(assets []asset.Asset, expression string) map[string]bool {
	up, down := strings.HasPrefix(expression, "+"), strings.HasSuffix(expression, "+")
	atom := strings.Trim(expression, "+")
	seeds := map[string]bool{}
	for _, a := range assets {
		if atom == "*" || atom == a.Key || atom == "tag:t" && len(a.Tags) > 0 || atom == "owner:o" && len(a.Owners) > 0 ||
			strings.HasSuffix(atom, "/*") && strings.HasPrefix(a.Key, strings.TrimSuffix(atom, "*")) {
			seeds[a.Key] = true
		}
	}
	grow := func(grows bool, touches func(a, b asset.Asset) bool) map[string]bool {
		set := map[string]bool{}
		for key := range seeds {
			set[key] = true
		}
		for changed := grows; changed; {
			changed = false
			for _, a := range assets {
				for _, b := range assets {
					if set[a.Key] && !set[b.Key] && touches(a, b) {
						set[b.Key], changed = true, true
					}
				}
			}
		}
		return set
	}
	all := grow(up, func(a, b asset.Asset) bool { return slices.Contains(a.Upstream, b.Key) })
	for key := range grow(down, func(a, b asset.Asset) bool { return slices.Contains(b.Upstream, a.Key) }) {
		all[key] = true
	}
	return all
}
