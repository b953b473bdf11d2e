package canon

import (
	"math/big"
	"strconv"
	"strings"
)

// Numbers are kept as IEEE doubles wherever JSON without a schema is accepted. A number is exact
// if the double, written again, is the same decimal number; a whole number below 1e21, which is
// written without an exponent, must also be the value of the double, since readers take it for an
// integer. 0.1, 1e23 and 9007199254740992 are exact; 9007199254740993, 0.1234567890123456789 and
// 1e-400 are not. Inexact numbers are refused, so that no number changes between sender and reader.
// Zero has no sign.
const (
	exactDigits   = 15 // significant decimal digits that every double keeps
	integerDigits = 21 // of whole numbers that are written without an exponent
	easyExponent  = 300
)

// ExactNumber reports whether a number comes back as the same decimal number. It takes JSON's
// numbers, and the integers of YAML in other bases.
func ExactNumber(text string) bool {
	text = strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")
	if based(text) {
		n, ok := new(big.Int).SetString(text, 0)
		if !ok {
			return false
		}
		text = n.String()
	}
	digits, exponent, ok := decimal(text)
	switch {
	case !ok:
		return false
	case digits == "":
		return true
	}
	integer := exponent >= len(digits) && exponent <= integerDigits
	if len(digits) <= exactDigits && exponent > -easyExponent && exponent < easyExponent && (!integer || exponent <= exactDigits) {
		return true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	if value, _, _ := decimal(strconv.FormatFloat(f, 'f', 0, 64)); integer && value != digits {
		return false
	}
	kept, at, _ := decimal(strconv.FormatFloat(f, 'e', -1, 64))
	return kept == digits && at == exponent
}

// based reports whether an integer is written in another base than ten, as YAML allows.
func based(text string) bool {
	text = strings.TrimPrefix(text, "-")
	return len(text) > 1 && text[0] == '0' && text[1] != '.' && text[1] != 'e' && text[1] != 'E'
}

// decimal reads a number as 0.digits × 10^exponent, without zeros at either end of the digits; no
// digits is zero.
func decimal(text string) (digits string, exponent int, ok bool) {
	text = strings.TrimPrefix(text, "-")
	if mantissa, power, found := strings.Cut(strings.ToLower(text), "e"); found {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil {
			// An exponent beyond all integers: the number is zero, or far from every double.
			return strings.Trim(mantissa, "0."), 0, strings.Trim(mantissa, "0.") == ""
		}
		text = mantissa
	}
	whole, fraction, _ := strings.Cut(text, ".")
	exponent += len(whole)
	digits = whole + fraction
	trimmed := strings.TrimLeft(digits, "0")
	exponent -= len(digits) - len(trimmed)
	return strings.TrimRight(trimmed, "0"), exponent, true
}

// Exact is JSON for documents whose numbers must keep their exact value: an inexact number is a fault
// with its path.
func Exact(input []byte) ([]byte, error) {
	if err := CheckExact(input); err != nil {
		return nil, err
	}
	return transform(input)
}

// CheckExact is Check that also refuses numbers that are not exact.
func CheckExact(input []byte) error {
	_, err := checkNumbers(input, true)
	return err
}

// CheckNumbers is Check that also reports whether all numbers are exact, for callers with a schema: a
// field of 64-bit integers keeps numbers that a double rounds.
func CheckNumbers(input []byte) (exact bool, err error) { return checkNumbers(input, false) }

// InexactNumber returns the message and the remedy for an inexact number.
func InexactNumber(text string) (message, remedy string) {
	return quote(text) + " cannot be kept exactly: numbers have the range and precision of an IEEE double", "send it as a string"
}
