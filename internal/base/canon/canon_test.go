package canon_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
)

func TestJSON(t *testing.T) {
	t.Parallel()

	canonical := map[string]struct{ in, want string }{
		"whitespace goes":                            {" { \"a\" :\t[ 1 , 2 ]\r\n} ", `{"a":[1,2]}`},
		"literals stay":                              {`[true,false,null]`, `[true,false,null]`},
		"a bare value is a document":                 {" 42\n", `42`},
		"empty containers stay":                      {`{"b":{},"a":[]}`, `{"a":[],"b":{}}`},
		"keys sort inside and outside":               {`{"b":{"d":1,"c":2},"a":0}`, `{"a":0,"b":{"c":2,"d":1}}`},
		"the empty key comes first":                  {`{"a":1,"":2}`, `{"":2,"a":1}`},
		"array order is kept":                        {`[3,1,2]`, `[3,1,2]`},
		"keys sort by UTF-16 units, not code points": {`{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3,"\u00f6":4,"\u0080":5,"1":6,"\r":7}`, "{\"\\r\":7,\"1\":6,\"\u0080\":5,\"ö\":4,\"€\":3,\"😀\":2,\"\ufb33\":1}"},
		"non-ASCII is not escaped":                   {`"\u20ac\u00f6\ud83d\ude00"`, `"€ö😀"`},
		"only what must be is escaped":               {`"\u000f\u0008\u000c\u000A\u000d\u0009\/\u0041\"\\"`, `"\u000f\b\f\n\r\t/A\"\\"`},
		"U+2028 and DEL stay":                        {"\"\u2028\u007f\"", "\"\u2028\u007f\""},
		"numbers take one form":                      {`[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001]`, `[333333333.3333333,1e+30,4.5,0.002,1e-27]`},
		"minus zero is zero":                         {`[-0,-0.0,0e9]`, `[0,0,0]`},
		"what is too small is zero":                  {`1e-400`, `0`},
		"an integer past 2^53 is rounded":            {`9007199254740993`, `9007199254740992`},
	}
	for name, c := range canonical {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := canon.JSON([]byte(c.in))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}

	refused := map[string]struct {
		in, field, message string
		offset             int
	}{
		"a duplicate key":                    {`{"a":{"b":1,"c":2,"b":3}}`, "a.b", `duplicate key "b"`, 18},
		"a duplicate key, spelt differently": {`{"a":1,"\u0061":2}`, "a", `duplicate key "a"`, 7},
		"a lone high surrogate":              {`["\ud83d"]`, "[0]", "lone surrogate", 2},
		"a lone low surrogate":               {`["x\ude00"]`, "[0]", "lone surrogate", 3},
		"two high surrogates":                {`["\ud83d\ud83d"]`, "[0]", "lone surrogate", 2},
		"invalid UTF-8":                      {"[\"a\xff\"]", "[0]", "not valid UTF-8", 3},
		"a surrogate in UTF-8":               {"[\"\xed\xa0\x80\"]", "[0]", "not valid UTF-8", 2},
		"an overlong form in UTF-8":          {"[\"\xc0\xaf\"]", "[0]", "not valid UTF-8", 2},
		"trailing data":                      {`{} {}`, "", "after the end", 3},
		"a number past the doubles":          {`{"n":[1,1e309]}`, "n[1]", "too large", 8},
		"leading zeros":                      {`01`, "", "not a number", 0},
		"a bare point":                       {`1.`, "", "not a number", 0},
		"a bare exponent":                    {`1e+`, "", "not a number", 0},
		"a lone minus":                       {`-`, "", "not a number", 0},
		"a plus":                             {`+1`, "", "expected a value", 0},
		"NaN":                                {`NaN`, "", "expected a value", 0},
		"a control character":                {"\"a\nb\"", "", "U+000A", 2},
		"an unknown escape":                  {`"\x41"`, "", "unknown escape", 1},
		"a short escape":                     {`"\u00g0"`, "", "four hexadecimal", 1},
		"an open string":                     {`{"a":"b`, "a", "no end", 5},
		"an open object":                     {`{"a":1`, "a", "unexpected end", 6},
		"a trailing comma":                   {`[1,]`, "[1]", "expected a value", 3},
		"a trailing comma in an object":      {`{"a":1,}`, "a", "key in double quotes", 7},
		"an unquoted key":                    {`{a:1}`, "", "key in double quotes", 1},
		"a missing colon":                    {`{"a" 1}`, "a", "':'", 5},
		"a comment":                          {`/* */ 1`, "", "expected a value", 0},
		"a byte order mark":                  {"\ufeff1", "", "expected a value", 0},
		"an empty document":                  {" \n", "", "empty", 2},
		"a broken literal":                   {`[true,fals]`, "[1]", "expected a value", 6},
		"a strange key in the path":          {`{"a b":[nul]}`, `["a b"][0]`, "expected a value", 8},
	}
	for name, c := range refused {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			_, err := canon.JSON([]byte(c.in))
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, c.field, f.Violation.Field)
			require.Contains(t, f.Message, c.message)
			require.Equal(t, c.offset, f.Values["offset"])
			require.NotEmpty(t, f.Violation.Remedy)
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()

	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }

	t.Run("the deepest document passes and the next is refused", func(t *testing.T) {
		t.Parallel()
		_, err := canon.JSON(nested(canon.MaxDepth))
		require.NoError(t, err)
		_, err = canon.JSON(nested(canon.MaxDepth + 1))
		require.ErrorContains(t, err, "nested deeper than 100 levels")
	})

	t.Run("a document over the size limit is refused unread", func(t *testing.T) {
		t.Parallel()
		_, err := canon.JSON(make([]byte, canon.MaxSize+1))
		require.True(t, fault.Is(err, fault.LimitExceeded))
	})

	t.Run("a hundred thousand keys are compared in passing", func(t *testing.T) {
		t.Parallel()
		keys := map[string]int{}
		for i := range 100_000 {
			keys[strconv.Itoa(i)] = i
		}
		plain, err := json.Marshal(keys)
		require.NoError(t, err)
		_, err = canon.JSON(plain)
		require.NoError(t, err)
		_, err = canon.JSON(append(plain[:len(plain)-1], `,"7":0}`...))
		require.ErrorContains(t, err, `duplicate key "7"`)
	})
}

func TestNumber(t *testing.T) {
	t.Parallel()

	// The bit patterns and their ECMAScript forms are those that RFC 8785 lists.
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		got, err := canon.Number(math.Float64frombits(bits))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := canon.Number(f)
		require.True(t, fault.Is(err, fault.InvalidArgument))
	}
}

func TestMarshal(t *testing.T) {
	t.Parallel()

	t.Run("a Go value takes the canonical form", func(t *testing.T) {
		t.Parallel()
		got, err := canon.Marshal(struct {
			Z string          `json:"z"`
			A json.RawMessage `json:"a"`
		}{Z: "<é>", A: json.RawMessage(`{"b": 1.0, "a": "\u00e9"}`)})
		require.NoError(t, err)
		require.Equal(t, `{"a":{"a":"é","b":1},"z":"<é>"}`, string(got))
	})

	t.Run("text that is not UTF-8 is refused, the replacement character is not", func(t *testing.T) {
		t.Parallel()
		_, err := canon.Marshal([]string{"a\xff"})
		require.ErrorContains(t, err, "not valid UTF-8")
		for _, text := range []string{"\ufffd", `\ufffd`, `\\ufffd`} {
			_, err = canon.Marshal([]string{text})
			require.NoError(t, err, text)
		}
	})

	t.Run("what JSON cannot express is refused", func(t *testing.T) {
		t.Parallel()
		for _, v := range []any{math.NaN(), func() {}, json.RawMessage(`{"a":1,"a":2}`), json.RawMessage(`"\ud800"`)} {
			_, err := canon.Marshal(v)
			require.True(t, fault.Is(err, fault.InvalidArgument), "%T", v)
		}
	})

	t.Run("the digest is the sha256 of the canonical bytes", func(t *testing.T) {
		t.Parallel()
		digest, err := canon.Digest(map[string]any{})
		require.NoError(t, err)
		require.Equal(t, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", digest)
		_, err = canon.Digest(math.Inf(1))
		require.Error(t, err)
	})
}

// anyJSON draws a JSON value as encoding/json knows it.
func anyJSON(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.Float64().AsAny(),
		rapid.String().AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	return rapid.OneOf(append(leaves,
		rapid.SliceOfN(anyJSON(depth-1), 0, 4).AsAny(),
		rapid.MapOfN(rapid.String(), anyJSON(depth-1), 0, 20).AsAny())...)
}

func TestProperties(t *testing.T) {
	t.Parallel()

	t.Run("canonical bytes are a fixed point and mean the same", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			value := anyJSON(3).Draw(t, "value")
			once, err := canon.Marshal(value)
			require.NoError(t, err)
			twice, err := canon.JSON(once)
			require.NoError(t, err)
			require.Equal(t, string(once), string(twice))

			var back any
			require.NoError(t, json.Unmarshal(once, &back))
			again, err := canon.Marshal(back)
			require.NoError(t, err)
			require.Equal(t, string(once), string(again))
		})
	})

	t.Run("indentation changes nothing", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			value := anyJSON(3).Draw(t, "value")
			once, err := canon.Marshal(value)
			require.NoError(t, err)
			indented, err := json.MarshalIndent(value, " ", "\t")
			require.NoError(t, err)
			again, err := canon.JSON(indented)
			require.NoError(t, err)
			require.Equal(t, string(once), string(again))
		})
	})

	t.Run("keys come out in the order of their UTF-16 units", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			keys := rapid.MapOf(rapid.String(), rapid.Just(0)).Draw(t, "keys")
			out, err := canon.Marshal(keys)
			require.NoError(t, err)
			decoder := json.NewDecoder(strings.NewReader(string(out)))
			_, err = decoder.Token()
			require.NoError(t, err)
			var previous []uint16
			for first := true; decoder.More(); first = false {
				token, err := decoder.Token()
				require.NoError(t, err)
				_, err = decoder.Token()
				require.NoError(t, err)
				key, ok := token.(string)
				require.True(t, ok)
				units := utf16.Encode([]rune(key))
				if !first {
					require.True(t, before(previous, units), "%v before %v", previous, units)
				}
				previous = units
			}
		})
	})
}

// before compares unit by unit, written apart from the code under test.
func before(a, b []uint16) bool {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return len(a) < len(b)
}
