module undrop/ricochet-example

go 1.20
