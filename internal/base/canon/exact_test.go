package canon_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
)

func TestExactNumbers(t *testing.T) {
	t.Parallel()
	for text, exact := range map[string]bool{
		"0": true, "-0": true, "0.0": true, "0e999999999999999999999": true, "1": true, "1.0": true, "-1.50": true, "0.1": true, "1e23": true, "1E+300": true,
		"9007199254740991": true, "9007199254740992": true, "9007199254740993": false, "-9007199254740993": false, "9007199254740994": true,
		"9223372036854775807": false, "9223372036854775808": false, "9223372036854776000": false, "-18014421451765630": false, "-18014421451765632": false, "123456789012345000000": false, "123456789012345670000": false, "100000000000000000000": true, "1.5e20": true, "18446744073709551615": false,
		"0.12345678901234567": false, "0.12345678901234568": true, "0.1234567890123456789": false, "0.10000000000000001": false, "3.141592653589793": true,
		"1e400": false, "-1e400": false, "1e-400": false, "1e99999999999999999999": false, "5e-324": true, "4e-324": false, "1.7976931348623157e308": true, "1.7976931348623158e308": false,
		"100000000000000000000000": true, "123456789012345678901234567890": false, "0.000000000000000000000000001": true,
		// YAML
		"0x1F": true, "0x20000000000001": false, "0o17": true, "010": true, "0b101": true, "1_000": true, "+5": true, "-0x10": true,
	} {
		require.Equal(t, exact, canon.ExactNumber(text), text)
	}
}

// TestExactProperty: a number is exact if and only if RFC 8785 writes the same decimal number and,
// where it writes an integer, the double is that integer. What is written is exact again.
func TestExactProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := drawNumber(t)
		canonical, err := canon.JSON([]byte(text))
		if err != nil { // over the range of a double
			require.False(t, canon.ExactNumber(text), text)
			return
		}
		want, ok := new(big.Rat).SetString(text)
		require.True(t, ok, text)
		got, ok := new(big.Rat).SetString(string(canonical))
		require.True(t, ok, string(canonical))
		same := want.Cmp(got) == 0
		if f, _ := want.Float64(); want.IsInt() && math.Abs(f) < 1e21 {
			same = same && want.Cmp(new(big.Rat).SetFloat64(f)) == 0
		}
		require.Equal(t, same, canon.ExactNumber(text), "%s comes back as %s", text, canonical)
		require.True(t, !same || canon.ExactNumber(string(canonical)), "%s", canonical)

		document := fmt.Sprintf(`{"a": [1, {"b": %s}]}`, text)
		kept, err := canon.Exact([]byte(document))
		if same {
			require.NoError(t, err)
			require.True(t, json.Valid(kept))
			return
		}
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, "a[1].b", f.Violation.Field)
		exact, err := canon.CheckNumbers([]byte(document))
		require.NoError(t, err, "it is nevertheless valid JSON")
		require.False(t, exact)
	})
}

// drawNumber draws a JSON number: with few digits and many, near powers of two, with exponents.
func drawNumber(t *rapid.T) string {
	digits := rapid.StringMatching(`[1-9][0-9]{0,24}`)
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		n := new(big.Int).Lsh(big.NewInt(1), uint(rapid.IntRange(50, 70).Draw(t, "bits")))
		return n.Add(n, big.NewInt(rapid.Int64Range(-3, 3).Draw(t, "beside"))).String()
	case 1:
		return rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign") + digits.Draw(t, "whole")
	case 2:
		return "0." + strings.Repeat("0", rapid.IntRange(0, 8).Draw(t, "zeros")) + digits.Draw(t, "fraction")
	case 3:
		return digits.Draw(t, "whole") + "." + digits.Draw(t, "fraction")
	default:
		return digits.Draw(t, "mantissa") + "e" + fmt.Sprint(rapid.IntRange(-330, 310).Draw(t, "power"))
	}
}
