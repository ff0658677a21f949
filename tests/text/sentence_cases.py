"""Texts with their sentences: `|` marks each boundary, and the white space after it belongs to neither sentence.

The cases were written for the project, before the rules of `ibidem.text.sentences` and without regard to them.
"""

from __future__ import annotations

GERMAN = """
Der Ordner ist leer. | Legen Sie eine Datei an.
Öffnen Sie die Datei! | Ist sie leer? | Dann löschen Sie sie.
Wir treffen uns am 3. Oktober in Berlin. | Bitte kommen Sie pünktlich.
Am 3. und 4. Mai ist das Büro geschlossen.
Die Sitzung vom 12. November 2021 wurde verschoben. | Ein neuer Termin folgt.
Er wurde am 1. 1. 1970 geboren.
Das ist der 2. Versuch. | Der 3. folgt morgen.
Im 19. Jahrhundert war das üblich. | Heute nicht mehr.
Der Vertrag endet am 31. 12. | Danach gilt die gesetzliche Frist.
Kaiser Wilhelm II. regierte bis 1918. | Dann dankte er ab.
Papst Johannes XXIII. berief das Konzil ein.
Das Dokument enthält z. B. Tabellen und Bilder. | Es kann gedruckt werden.
Das Dokument enthält z.B. Tabellen, Bilder usw. und kann gedruckt werden.
Er kaufte Äpfel, Birnen usw. | Danach ging er nach Hause.
Siehe Abb. 3 und Tab. 4 im Anhang. | Dort stehen die Werte.
Vgl. Kap. 5, S. 12 ff. und Art. 7 Abs. 2 Nr. 3.
Laut § 5 Abs. 1 Satz 2 BGB ist das zulässig. | Das Gericht folgte dem.
Dr. Müller und Prof. Schmidt sind heute nicht da. | Frau Dr. Weber vertritt sie.
Prof. Dr. h. c. Anna Meier hielt den Vortrag.
Sehr geehrter Hr. Müller, anbei die Rechnung Nr. 17. | Mit freundlichen Grüßen
Herr J. S. Bach wohnte in Leipzig. | Er starb 1750.
E. T. A. Hoffmann schrieb Erzählungen.
Die Firma A. Huber GmbH & Co. KG hat ihren Sitz in Wien. | Sie besteht seit 1950.
Der Preis beträgt 1.234,50 EUR. | Hinzu kommt die MwSt. von 19 %.
Die Version 2.10.3 ist erschienen. | Sie behebt drei Fehler.
Installieren Sie Python 3.11. | Starten Sie dann den Dienst.
Die Datei README.md liegt unter www.example.org/docs. | Lesen Sie sie zuerst.
Besuchen Sie https://www.example.org/hilfe.html?x=1. | Dort finden Sie mehr.
Schreiben Sie an max.muster@example.org! | Wir antworten bald.
Er sagte: „Ich komme morgen.“ | Dann ging er.
„Kommst du mit?“, fragte sie. | Er nickte.
„Kommst du mit?“ fragte sie.
„Das ist gut!“ | „Finde ich auch.“
Sie rief: "Halt!" | Niemand hörte sie.
»Wo bist du?« | »Hier!«
Das war (leider) alles. | (Mehr dazu im Anhang.) | Weiter geht es morgen.
Klicken Sie auf OK (oder drücken Sie die Eingabetaste). | Das Fenster schließt sich.
Er wartete … | Niemand kam.
Er wartete … und wartete.
Ich weiß nicht... vielleicht morgen.
Ich weiß nicht... | Vielleicht morgen.
Was?! | Das kann nicht sein!!! | Doch.
Wirklich? | Ja.
1. Öffnen Sie das Menü. | 2. Wählen Sie „Speichern“. | 3. Bestätigen Sie.
1. Installation
a) Laden Sie das Paket. | b) Entpacken Sie es.
- Erster Punkt. | - Zweiter Punkt.
• Datei öffnen. | • Datei schließen.
Die Fa. Meier liefert am Mo. und Di. | Am Mi. ist Ruhetag.
Das kostet ca. 5 Mio. Euro. | Der Bau dauert etwa 2 Jahre.
Der Vorstand der Allianz AG tagt um 10.30 Uhr. | Er dauert bis ca. 12 Uhr.
Die Temperatur lag bei max. 25 Grad. | Nachts waren es min. 8.
Die Adresse lautet Hauptstr. 5. | Der Eingang ist im Hof.
Er wohnt in der Bahnhofstr. 12 in Köln.
Bitte klicken Sie auf Datei > Speichern unter… | Geben Sie einen Namen ein.
Drücken Sie Strg+S. | Die Datei wird gespeichert.
Ist das Feld leer, wird "n. a." angezeigt. | Das ist kein Fehler.
Der Server antwortet nicht. | %s wurde nicht gefunden.
{0} Dateien wurden kopiert. | {1} Dateien fehlen.
Klicken Sie auf <b>Weiter</b>. | <i>Achtung:</i> Das dauert lange.
Das Passwort muss u. a. eine Ziffer enthalten. | Es darf nicht leer sein.
Die Straße ist d. h. die Zufahrt ist gesperrt.
Der Kurs findet i. d. R. montags statt. | Die Teilnahme ist frei.
Er ist seit Jan. 2020 dabei. | Seit Feb. leitet er die Gruppe.
Das Gesetz trat am 1. Januar in Kraft. | § 3 gilt später.
Er kam um 8 Uhr. | 20 Personen warteten schon.
Das war 1999. | Der Krieg war vorbei.
Es gibt 3 Fälle. | Im 1. Fall ist nichts zu tun. | Im 2. hilft ein Neustart.
Der 1. FC Köln spielt heute. | Das Spiel beginnt um 20 Uhr.
Er ist Nr. 1. | Sie ist Nr. 2.
Das stimmt nicht ganz. | iPhone und iPad brauchen beide ein Konto.
Herr Müller (geb. 1950 in Graz) lebt in Bonn. | Er malt.
Alle Rechte vorbehalten. | © 2020 Muster GmbH.
Die Methode foo.bar() gibt nichts zurück. | Rufen Sie sie nur einmal auf.
„Er sagte: ‚Komm!‘ | Ich kam.“
Die USA und die U.S.A. sind dasselbe.
Das Treffen ist am Fr., 5. Mai, um 9 Uhr. | Bitte bestätigen Sie.
Die Grundfläche beträgt 20 qm. | Der Raum ist 3 m hoch.
Es wurde von der Fa. Bosch u. Söhne entwickelt.
Fortsetzung s. Seite 5. | Ende
"""

ENGLISH = """
The folder is empty. | Create a file.
Open the file! | Is it empty? | Then delete it.
Dr. Smith and Mr. Jones met Mrs. Brown at 5 p.m. in Boston. | They talked.
She arrived at 5 p.m. | He was late.
He lives in the U.S. and works in the U.K. today.
He moved to the U.S. | She stayed.
J. R. R. Tolkien wrote it. | It sold well.
George W. Bush spoke first. | Then others did.
See Fig. 3 and Sec. 4.2 for details. | They are short.
Cf. Smith et al. 2010, pp. 3-5.
The method (see Eq. 5) is fast. | It is also simple.
Use e.g. a hammer, i.e. a tool. | Be careful.
Apples, pears, etc. are fruit. | They are healthy.
We sell apples, pears, etc. | Come in.
The price is $3.50. | Tax is extra.
Version 2.10.3 is out. | It fixes three bugs.
Install Python 3.11. | Then start the service.
Visit https://www.example.org/help.html?x=1. | You will find more there.
Read README.md first. | Then run setup.py.
Write to john.doe@example.org! | We answer soon.
He said, "I will come tomorrow." | Then he left.
"Are you coming?" she asked. | He nodded.
"Stop!" he cried.
“It works.” | “I think so too.”
She said 'no.' | He left.
That was (sadly) all. | (More in the appendix.) | We continue tomorrow.
Click OK (or press Enter.) | The window closes.
He waited … | Nobody came.
I don't know... maybe tomorrow.
I don't know... | Maybe tomorrow.
What?! | That cannot be!!! | It is.
1. Open the menu. | 2. Choose "Save". | 3. Confirm.
1. Installation
a) Download it. | b) Unpack it.
- First item. | - Second item.
Acme Inc. was founded in 1950. | It makes tools.
The Acme Corp. board met. | Nothing changed.
The meeting is on Jan. 5 at No. 10. | Please come.
St. Paul's is large. | Mt. Everest is larger.
It weighs 5 lb. or so. | It is red.
The U.N. Security Council met. | It voted.
I am in Plan B. | You are not.
So did I. | He did too.
It is vitamin C. | Take it daily.
Press Ctrl+S. | The file is saved.
The server does not answer. | %s was not found.
{0} files were copied. | {1} files are missing.
Click <b>Next</b>. | <i>Note:</i> This takes long.
It was 1999. | The war was over.
He came at 8. | 20 people waited.
Gov. Brown and Sen. Green agree. | Rep. White does not.
He has a Ph.D. in physics. | She has a B.A.
That is not quite right. | iPhones need an account.
All rights reserved. | © 2020 Acme Ltd.
The method foo.bar() returns nothing. | Call it once.
The firm grew by 3.5 percent vs. 2.1 percent before. | Profits fell.
Yahoo! is a company.
Approx. 20 people came. | The rest did not.
No. | That is wrong.
He is No. 1. | She is No. 2.
"Why?" | "Because."
"""

OTHER = """
fr|Il est parti. | Elle est restée. | Pourquoi ?
fr|M. Dupont est là. | Il attend.
es|¿Dónde estás? | ¡Aquí! | Ven.
it|Il sig. Rossi è qui. | Aspetta.
ru|Он ушёл. | Она осталась.
zh|今天天气很好。|我们去公园吧！|好吗？
ja|「行こう。」|と言った。
el|Πού είσαι; | Εδώ.
hi|यह अच्छा है। | वह गया।
ar|أين أنت؟ | هنا.
"""


def parse_cases(table: str) -> list[tuple[str, list[str]]]:
    """Return each text of a table without marks, with the list of its sentences."""
    cases = []
    for line in table.strip().splitlines():
        sentences = [part.strip() for part in line.split("|")]
        cases.append((line.replace(" | ", " ").replace("|", ""), sentences))
    return cases
