package asset_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
)

func TestValidateParameters(t *testing.T) {
	t.Parallel()

	setup := func(t *testing.T) asset.Pipeline {
		t.Helper()
		p, ok := readGood(t, "full.yaml").Pipeline("revenue")
		require.True(t, ok)
		return p
	}

	t.Run("defaults are filled in and the answer is canonical", func(t *testing.T) {
		t.Parallel()
		got, err := asset.ValidateParameters(setup(t), json.RawMessage(` {"region":"us", "limit": 1e2, "day": "2026-01-01"} `))
		require.NoError(t, err)
		require.Equal(t, `{"day":"2026-01-01","days":["2026-01-01"],"full":false,"limit":100,"options":{"a":[true,null],"b":1},"region":"us"}`, string(got))
		again, err := asset.ValidateParameters(setup(t), got)
		require.NoError(t, err)
		require.Equal(t, string(got), string(again))
	})

	t.Run("nothing is an empty object", func(t *testing.T) {
		t.Parallel()
		got, err := asset.ValidateParameters(asset.Pipeline{}, nil)
		require.NoError(t, err)
		require.Equal(t, `{}`, string(got))
	})

	for name, c := range map[string]struct{ json, want string }{
		"a missing one":          {`{}`, "parameters.day: is missing (send a value of type string)"},
		"an unknown one":         {`{"day":"d","regoin":"eu"}`, "parameters.regoin: unknown parameter; did you mean region? (known parameters: day, days, full, limit, options, ratio, region)"},
		"a string for a number":  {`{"day":"d","limit":"1"}`, "parameters.limit: must be of type integer, is a string"},
		"a fraction":             {`{"day":"d","limit":1.5}`, "parameters.limit: must be an integer, is a fraction"},
		"an unsafe integer":      {`{"day":"d","limit":9007199254740993}`, "parameters.limit: \"9007199254740993\" cannot be kept exactly"},
		"an integer of 2^53":     {`{"day":"d","limit":9007199254740992}`, "parameters.limit: is an integer beyond 2^53-1, which JSON readers would round"},
		"a number for a string":  {`{"day":20260101}`, "parameters.day: must be of type string, is a number"},
		"null":                   {`{"day":null}`, "parameters.day: must be of type string, is null"},
		"a list for an object":   {`{"day":"d","options":[]}`, "parameters.options: must be of type object, is a list"},
		"an object for a list":   {`{"day":"d","days":{}}`, "parameters.days: must be of type array, is an object"},
		"a number for a boolean": {`{"day":"d","full":1}`, "parameters.full: must be of type boolean, is a number"},
		"outside the enum":       {`{"day":"d","region":"asia"}`, `parameters.region: is not an allowed value (choose one of "eu", "us")`},
		"outside a numeric enum": {`{"day":"d","ratio":2}`, `(choose one of 0.5, 1, 1.5)`},
		"no object":              {`[]`, "parameters: must be an object, is a list"},
		"no JSON":                {`{"day":}`, "parameters.day: expected a value"},
		"a repeated name":        {`{"day":"a","day":"b"}`, `parameters.day: duplicate key "day"`},
		"NUL":                    {`{"day":"\u0000"}`, "parameters.day: contains a NUL character"},
		"two mistakes":           {`{"limit":"x"}`, ", and 1 more"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			_, err := asset.ValidateParameters(setup(t), json.RawMessage(c.json))
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.ErrorContains(t, err, c.want)
			require.NotEmpty(t, f.Violation.Remedy)
		})
	}

	t.Run("64 KB are the limit, before and after the defaults", func(t *testing.T) {
		t.Parallel()
		text := func(n int) json.RawMessage { return json.RawMessage(`{"x":"` + strings.Repeat("x", n-8) + `"}`) }
		one := asset.Pipeline{Parameters: []asset.Parameter{{Name: "x", Type: asset.TypeString}}}
		got, err := asset.ValidateParameters(one, text(asset.MaxParameterBytes))
		require.NoError(t, err)
		require.Len(t, got, asset.MaxParameterBytes)
		_, err = asset.ValidateParameters(one, text(asset.MaxParameterBytes+1))
		require.True(t, fault.Is(err, fault.LimitExceeded))
		two := asset.Pipeline{Parameters: append(one.Parameters, asset.Parameter{Name: "y", Type: asset.TypeInteger, Default: json.RawMessage(`1`)})}
		_, err = asset.ValidateParameters(two, text(asset.MaxParameterBytes))
		require.True(t, fault.Is(err, fault.LimitExceeded))
	})
}
