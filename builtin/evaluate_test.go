package builtin

import (
	"math"
	"strings"
	"testing"
)

func TestEvaluate(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]float64{
		"6*7":               42,
		" 2 * (3 + 4) ":     14,
		"1 + 2 * 3 - 4 / 2": 5,
		"10 - 2 - 3":        5,
		"2^3^2":             512,
		"-2^2":              -4,
		"2^-1":              0.5,
		"--3":               3,
		"7 % 4":             3,
		"0.1 + 0.2":         0.3,
		".5 * 4":            2,
		"6 × 7 ÷ 2":         21,
		"((((1))))":         1,
	} {
		if got, err := evaluate(expression); err != nil || got != want {
			t.Errorf("%s = %v, %v; want %v", expression, got, err, want)
		}
	}
	for expression, want := range map[string]string{
		"":                         "is incomplete",
		"1 +":                      "is incomplete",
		"1 2":                      "unexpected '2'",
		"2 * x":                    "unexpected 'x'",
		"(1":                       "parenthesis is missing",
		"1)":                       "unexpected ')'",
		"1.2.3":                    `"1.2.3" is not a number`,
		"1/0":                      "division by zero",
		"1%0":                      "division by zero",
		"10^999":                   "not a finite number",
		"(0-1)^0.5":                "not a finite number",
		strings.Repeat("(", 10000): "nested too deeply",
		strings.Repeat("-", 10000): "nested too deeply",
	} {
		if got, err := evaluate(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s = %v, %v; want an error that says %q", expression, got, err, want)
		}
	}
}

func FuzzEvaluate(f *testing.F) {
	f.Add("2 * (3 + 4)^-1 % 5")
	f.Add("((1÷0")
	f.Fuzz(func(t *testing.T, expression string) {
		value, err := evaluate(expression)
		if err == nil && (math.IsInf(value, 0) || math.IsNaN(value)) {
			t.Errorf("%q = %v", expression, value)
		}
	})
}
